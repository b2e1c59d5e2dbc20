"""Which store the objects on a cluster belong to: runs are numbered by their store, and another store has a finetune-1 too. Called by
resource and kubernetes."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from penstock.backends.base import BackendContext


def owner_of(context: BackendContext) -> str:
    """The same for every engine of the store."""
    return owner_in(context.home, context.environ)


def owner_in(home: Path, environ: Mapping[str, str]) -> str:
    """`environ`: that of tasks."""
    store = environ.get("PENSTOCK_STORE", "")  # without its password
    where = f"{platform.node()}:{home.absolute()}"
    if "://" in store:
        where = re.sub(r"//[^@/]*@", "//", store)
    return hashlib.sha256(where.encode("utf-8", "surrogatepass")).hexdigest()[:16]
