"""The program in a pod: it fetches inputs, calls a function or many, leads the parts of a step, or stores outputs. Started by boot, in an image
that need not have Penstock.

It says how it ended in the container's termination message, as JSON: `{"result": digest}`, the blob with the result, or
`{"failed": sentence}`, or `{"errored": sentence}`; and of a part that failed `{"part": name, "code": text, "why": sentence}`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.artifacts.regular import Limits
from penstock.expressions.types import parse

INSIDE = Path("/tmp/penstock")
SAID = "/dev/termination-log"
_LONGEST = 3000
"""Characters of a sentence in the message; Kubernetes keeps 4096 bytes."""


def main(store: str, verb: str, digest: str) -> None:
    signal.signal(signal.SIGTERM, _terminated)
    blobs = Blobs(store)
    if verb == "call":
        _leave(_call(blobs, digest))
    try:
        if verb == "fetch":
            _fetch(blobs, digest)
        elif verb == "serve":
            _leave(_serve(blobs, digest))
        elif verb == "lead" and not _lead():
            _leave(1)
        else:
            _put(blobs, digest)
    except ValueError as error:
        _say({"failed": str(error)[:_LONGEST]})
        _leave(1, str(error))
    except Exception as error:  # a blob that is missing, a full disk, a store that does not answer
        text = str(error) or type(error).__name__
        _say({"errored": text[:_LONGEST]})
        _leave(1, text)
    _leave(0)


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _say(data: dict[str, Any]) -> None:
    with suppress(OSError), open(SAID, "w", encoding="utf-8") as file:
        json.dump(data, file)


def _leave(code: int, message: str = "") -> NoReturn:
    import atexit

    if message:
        print(message, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without waiting for threads that a function left running


def _call(blobs: Blobs, digest: str) -> int:
    from penstock.backends.local import function_main

    folder = INSIDE / "call"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "call.json").write_bytes(blobs.get(digest))
    pid = os.getpid()
    result, _ = function_main.run(folder)
    if os.getpid() != pid:
        os._exit(0)  # the function forked, and this is the child
    try:
        _say({"result": blobs.put(values.dumps(list(result)).encode())})
    except Exception as error:
        _say({"errored": f"its result cannot be stored: {error}"[:_LONGEST]})
        print(error, file=sys.stderr)
        return 1
    if result[0] == "succeeded":
        return 0
    print(result[4] or result[3], file=sys.stderr)
    return 1


def _serve(blobs: Blobs, digest: str) -> int:
    import asyncio

    from penstock.backends.kubernetes.serve import serve

    given = values.loads(blobs.get(digest).decode())
    own_only, pickles = given["blobs"]
    blobs = Blobs(blobs.root, own_only, pickles, Limits(*given["limits"]))
    return asyncio.run(serve(blobs, given, INSIDE / f"home-{os.getpid()}"))


def _lead() -> bool:
    """Have the parts of its pod succeeded?"""
    from penstock.backends.kubernetes.lead import PodLeader

    plan = json.loads((INSIDE / "plan.json").read_text(encoding="utf-8"))
    failure = PodLeader(plan, INSIDE, os.environ.get("PENSTOCK_REPLICA", "0")).run()
    if failure is None:
        return True
    code = "" if failure.code is None else str(failure.code)
    _say({"part": failure.part, "code": code, "why": failure.message[:_LONGEST]})
    return False


def _fetch(blobs: Blobs, digest: str) -> None:
    from penstock.graph.model import Input

    for sub, name, type_, value in values.loads(blobs.get(digest).decode()):
        place = INSIDE / sub
        values.write_input(Input(name=name, value=None, type=parse(type_)), value, place, blobs)
        _open_to_all(place)


def _open_to_all(path: Path) -> None:
    """The command's image may run as any user. The path is a copy that belongs to the attempt."""
    if path.is_symlink():
        return
    if path.is_dir():
        path.chmod(0o777)
        for inner in path.iterdir():
            _open_to_all(inner)
    else:
        path.chmod(path.stat().st_mode & 0o777 | 0o666)


def _put(blobs: Blobs, digest: str) -> None:
    from penstock.graph.model import Output

    given = values.loads(blobs.get(digest).decode())
    blobs = Blobs(blobs.root, limits=Limits(*given["limits"]))
    found: dict[str, Any] = {}
    for name, type_, sub, shown in given["outputs"]:
        output, place = Output(name=name, type=parse(type_)), INSIDE / sub
        if not os.path.lexists(place):
            if output.type.name == "optional":
                found[name] = None
                continue
            raise ValueError(f"the output {name!r} was not written: there is no file {shown} in the container")
        if not Path(os.path.realpath(place)).is_relative_to(INSIDE):
            raise ValueError(f"the output {name!r} is a link that leads elsewhere: write the file itself to {shown}")
        found[name] = values.read_output(output, place, blobs, loosely=given["loosely"])
    _say({"result": blobs.put(values.dumps(found).encode())})
