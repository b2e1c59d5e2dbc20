"""One function step in a process of its own: a replica of a gang, or the program in a container. process and container start it
with a folder:

    call.json      what to call, with what (written by `write_call`)
    result.json    the result (read by `read_result`)

In a container the Penstock package is mounted. The image needs Python 3.11 or newer and nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - an image may have any Python
        sys.exit("penstock: function steps need Python 3.11 or newer in their image; this is " + sys.version.split()[0])
    if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]  # files beside this one are not modules of Python
    sys.path.append(str(Path(__file__).parents[3]))

from penstock import rights
from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.artifacts.regular import Limits, open_regular
from penstock.backends.local.invoke import ERRORED, CallResult, FunctionCall, described
from penstock.backends.local.loader import Loader
from penstock.expressions.secret import filled

SECRETS = "PENSTOCK_SECRET_TEXTS"
"""The variable with the texts of the secrets among its inputs. call.json has their names."""

if TYPE_CHECKING:
    from penstock.backends.base import AttemptSpec, TakenFiles


def secret_env(spec: AttemptSpec) -> dict[str, str]:
    """What its process needs to know the texts of its secrets."""
    return {SECRETS: json.dumps(dict(spec.secrets))} if spec.secrets and spec.action.kind == "function" else {}


def call_text(spec: AttemptSpec, blobs: Blobs, cache: str) -> str:
    """What call.json says. `blobs` and `cache` are as the process sees them."""
    action: Any = spec.action
    return values.dumps(
        {
            "bundle": spec.bundle,
            "module": action.module,
            "name": action.name,
            "code": action.code,
            "working_directory": spec.working_directory,
            "inputs": spec.inputs,
            "texts": [given.name for given in spec.step.inputs if given.type.name == "str"],
            "outputs": [[output.name, str(output.type)] for output in spec.step.outputs],
            "blobs": [blobs.root, blobs.own_only, blobs.pickles],
            "limits": [blobs.limits.value, blobs.limits.file],
            "cache": cache,
        }
    )


def write_call(spec: AttemptSpec, folder: Path, blobs: Blobs, cache: str) -> None:
    rights.make_folder(folder)
    (folder / "call.json").write_text(call_text(spec, blobs, cache), encoding="utf-8")


def read_result(folder: Path) -> tuple[CallResult, TakenFiles | None] | None:
    """None: the process ended before it had a result."""
    try:
        with open_regular(folder / "result.json", follow=False) as file:
            found = values.loads(file.read().decode())
    except (OSError, ValueError):
        return None
    (outcome, outputs, exception, message, trace), taken = found
    from penstock.backends.base import TakenFiles

    files = None if taken is None else TakenFiles(taken[0], taken[1], tuple(taken[2]))
    return (outcome, outputs, exception, message, trace), files


def run(folder: Path) -> tuple[CallResult, tuple[str, ...]]:
    """The result, and what `FunctionCall.taken` has."""
    given = values.loads((folder / "call.json").read_text(encoding="utf-8"))
    root, own_only, pickles = given["blobs"]
    blobs = Blobs(root, own_only, pickles, Limits(*given["limits"]))
    loader = Loader(blobs, Path(given["cache"]))
    try:
        function = loader.function(
            given["bundle"], given["module"], given["name"], given["code"], given["working_directory"]
        )
    except Exception as error:
        return (ERRORED, {}, *described(error, with_traceback=error.__cause__ is not None)), ()
    outputs = tuple((name, type_) for name, type_ in given["outputs"])
    inputs = filled(given["inputs"], json.loads(os.environ.pop(SECRETS, "{}")))
    call = FunctionCall(function, outputs, frozenset(given["texts"]))
    return call.run(inputs, blobs, lambda: folder / "in"), call.taken


def main(folder: Path) -> int:
    pid, began = os.getpid(), monotonic()
    result, paths = run(folder)
    if os.getpid() != pid:
        os._exit(0)  # the function forked, and this is the child
    text = values.dumps([list(result), [began, monotonic(), paths] if paths else None])
    (folder / "result.json.new").write_text(text, encoding="utf-8")
    os.replace(folder / "result.json.new", folder / "result.json")
    if result[0] == "succeeded":
        return 0
    print(result[4] or result[3], file=sys.stderr)
    return 1


def _terminated(number: int, frame: object) -> None:
    """The function may clean up, as in a worker."""
    sys.exit(128 + number)


if __name__ == "__main__":
    import atexit
    import signal

    signal.signal(signal.SIGTERM, _terminated)
    code = main(Path(sys.argv[1]))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without waiting for threads that the function left running
