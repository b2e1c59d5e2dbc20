"""A function step in a container: the copies that it gets, and the result that it leaves. Called by step.

The image needs Python 3.11 or newer and nothing else: Penstock itself is mounted, read only. The function gets copies of the blobs
that its inputs name, and what it stores is copied to the artifact store afterwards. So a container neither sees nor changes the
blobs of others, and needs no credentials for the artifact store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.backends.container.files import INSIDE, ContainerFiles, open_to_all
from penstock.backends.container.spec import command_of
from penstock.backends.local import function_main
from penstock.backends.local.invoke import CallResult
from penstock.graph.stored import Stored

CALL, LIBRARY = f"{INSIDE}/call", f"{INSIDE}/lib"
_RUN = "import sys; sys.path.pop(0); sys.argv.pop(0); import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
"""Like `python -P`, which an old Python does not understand: this one gets far enough to say that it is too old."""


def prepare_function(files: ContainerFiles, image: str) -> list[str]:
    """Its command. Raises OSError, and what the blobs raise."""
    spec, blobs = files.spec, files.context.blobs
    folder = files.folder / "call"
    inside = Blobs(f"{CALL}/blobs", pickles=blobs.pickles, limits=blobs.limits)
    function_main.write_call(spec, folder, inside, f"{INSIDE}/cache")
    copies = Blobs(folder / "blobs")
    wanted = {stored.digest for stored in _stored_in(spec.inputs, blobs)}
    for digest in sorted(wanted | ({spec.bundle} if spec.bundle else set())):
        blobs.fetch(digest, _path_of(copies, digest))
    open_to_all(folder)
    files.mount(folder, CALL)
    library = Path(__file__).parents[3]
    files.mount(library / "penstock", f"{LIBRARY}/penstock", read_only=True)
    main = f"{LIBRARY}/{Path(function_main.__file__).relative_to(library)}"
    return command_of(image, ["python3", "-c", _RUN, main, CALL], [])


def read_function_result(files: ContainerFiles) -> CallResult | None:
    """Copies what it has stored to the artifact store. None: it ended before it had a result. Raises ValueError."""
    found = function_main.read_result(files.folder / "call")
    if found is None:
        return None
    result, _ = found  # the files that it returned were its container's own
    theirs, ours = Blobs(files.folder / "call" / "blobs"), files.context.blobs
    waiting = list(_stored_in(result[1]))
    while waiting:
        stored = waiting.pop()
        if not ours.has(stored.digest):
            file = theirs.local(stored.digest)
            if file is None or file.is_symlink() or not file.is_file() or ours.put_file(file)[0] != stored.digest:
                raise ValueError(f"the function returned a {stored.kind} that it did not store")
        if stored.kind == "json":
            waiting += _stored_in(values.loads(ours.get(stored.digest).decode()))
    return result


def _path_of(blobs: Blobs, digest: str) -> Path:
    name = digest.removeprefix("sha256:")
    return Path(blobs.root) / name[:2] / name[2:]


def _stored_in(value: Any, blobs: Blobs | None = None) -> Iterator[Stored]:
    """Every Stored in a value; with `blobs`, also those in stored plain data."""
    if isinstance(value, Stored):
        yield value
        if blobs is not None and value.kind == "json":
            yield from _stored_in(values.loads(blobs.get(value.digest).decode()), blobs)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _stored_in(item, blobs)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _stored_in(item, blobs)
