"""How a pod comes to Penstock's own code: a few lines of Python that take it from the artifact store. Called by work and attempt.

They need Python 3.11 of the image and, for a store behind a URL, fsspec with the driver for it. The code is the part of this package that
in_pod needs, as a zip whose digest is its content: it is stored once.
"""

from __future__ import annotations

import io
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

BOOT: Final = """\
import sys
if sys.version_info < (3, 11):
    sys.exit("penstock: the image needs Python 3.11 or newer; this is " + sys.version.split()[0])
import hashlib, io, os, zipfile
sys.path = [path for path in sys.path if path]
store, name = sys.argv[1], sys.argv[2].removeprefix("sha256:")
place = f"{store.rstrip('/')}/{name[:2]}/{name[2:]}"
try:
    if "://" in store:
        try:
            import fsspec
        except ImportError:
            sys.exit("penstock: the image needs the Python package fsspec, and the driver for " + store.partition(":")[0])
        opened = fsspec.open(place, "rb")
    else:
        opened = open(place, "rb")
    with opened as file:
        data = file.read()
except ImportError as error:
    sys.exit(f"penstock: the image needs another Python package for {store.partition(':')[0]}: {error}")
except Exception as error:
    sys.exit(f"penstock: the artifact store {store} cannot be read in the pod: {type(error).__name__}: {error}")
if hashlib.sha256(data).hexdigest() != name:
    sys.exit("penstock: the program in the artifact store is damaged")
library = "/tmp/penstock/lib-" + str(os.getpid())
zipfile.ZipFile(io.BytesIO(data)).extractall(library)
sys.path.append(library)
sys.dont_write_bytecode = True
from penstock.backends.kubernetes.in_pod import main
main(store, *sys.argv[3:5])
"""
_LEFT_OUT: Final = ("admission", "cli", "controller", "drawing", "engine", "formats", "service", "store")
"""Packages that no code in a pod needs. An author's module may import the others, when it imports penstock."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


@cache
def library() -> bytes:
    """The code as a zip; the same bytes for the same code."""
    root = Path(__file__).parents[2]
    files = [root / "catalogue.toml"]
    files += [file for file in root.rglob("*.py") if file.relative_to(root).parts[0] not in _LEFT_OUT]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files):
            info = zipfile.ZipInfo(f"penstock/{file.relative_to(root).as_posix()}", _EPOCH)
            archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return target.getvalue()
