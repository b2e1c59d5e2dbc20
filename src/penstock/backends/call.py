"""One function step in a process of its own: a replica of a gang, or the inside of a container. Started by process and container
as a program, with a folder:

    call.json      what to call, with what (written by `write_order`)
    result.json    how it went (read by `read_result`)

In a container it finds the Penstock package mounted beside it; the image needs Python 3.11 or newer and nothing else.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - an image may have any Python
        sys.exit("penstock: function steps need Python 3.11 or newer in their image; this is " + sys.version.split()[0])
    if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]  # beside this file lies an http.py, which is not Python's own
    sys.path.append(str(Path(__file__).parents[2]))

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.backends.invoke import ERRORED, Call, Told, described
from penstock.backends.loader import Loader

if TYPE_CHECKING:
    from penstock.backends.base import Order


def write_order(order: Order, folder: Path, blobs_root: str, cache: str) -> None:
    action: Any = order.action
    text = values.dumps(
        {
            "bundle": order.bundle,
            "module": action.module,
            "name": action.name,
            "code": action.code,
            "place": order.place,
            "inputs": order.inputs,
            "texts": [given.name for given in order.step.inputs if given.type.name == "str"],
            "outputs": [[output.name, str(output.type)] for output in order.step.outputs],
            "blobs": blobs_root,
            "cache": cache,
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "call.json").write_text(text, encoding="utf-8")


def read_result(folder: Path) -> Told | None:
    """None: the process ended before it could say anything."""
    try:
        found = values.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    outcome, outputs, exception, message, trace = found
    return outcome, outputs, exception, message, trace


def run(folder: Path) -> Told:
    given = values.loads((folder / "call.json").read_text(encoding="utf-8"))
    blobs = Blobs(given["blobs"])
    loader = Loader(blobs, Path(given["cache"]))
    try:
        function = loader.function(given["bundle"], given["module"], given["name"], given["code"], given["place"])
    except Exception as error:
        return (ERRORED, {}, *described(error, with_traceback=error.__cause__ is not None))
    outputs = tuple((name, type_) for name, type_ in given["outputs"])
    return Call(function, outputs, frozenset(given["texts"])).run(given["inputs"], blobs, lambda: folder / "in")


def main(folder: Path) -> int:
    pid = os.getpid()
    told = run(folder)
    if os.getpid() != pid:
        os._exit(0)  # the function forked, and this is the child
    text = values.dumps(list(told))
    (folder / "result.json.new").write_text(text, encoding="utf-8")
    os.replace(folder / "result.json.new", folder / "result.json")
    if told[0] == "succeeded":
        return 0
    print(told[4] or told[3], file=sys.stderr)
    return 1


def _terminated(number: int, frame: object) -> None:
    """The function may clean up behind itself, as it may in a worker."""
    sys.exit(128 + number)


if __name__ == "__main__":
    import atexit
    import signal

    signal.signal(signal.SIGTERM, _terminated)
    code = main(Path(sys.argv[1]))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without waiting for threads that the function left behind
