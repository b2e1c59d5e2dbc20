"""Which tracking server is told of runs, as the user has said it: PENSTOCK_MLFLOW, MLFLOW_TRACKING_URI, or `mlflow:` in penstock.yaml. Called by
each submission, by hosting, by the clean-up, and by the reader of queues, whose file is the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import Problem, UserError

FILE = "penstock.yaml"
LARGEST = 100 * 2**20
_OFF = ("no", "off", "0", "false")
_WRITTEN = re.compile(r"^mlflow\s*:", re.M)
_BREAK = re.compile(r"^---[^\n]*$", re.M)
_TRUE = ("true", "1", "yes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """MLflow's own variables."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    insecure: bool = False
    """Take any certificate."""
    authority: str = ""
    """A file with the certificates to trust."""
    certificate: str = ""
    """A file with a certificate of our own, and its key."""


_PERSONAL = frozenset({"MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingTarget:
    url: str
    """Without a password."""
    experiment: str = ""
    """Empty: the name of the workflow."""
    largest: int = LARGEST
    """Bytes of a file that is sent."""
    credentials: Credentials = field(default_factory=Credentials, repr=False)

    def serves(self, url: str) -> bool:
        """Is it the server of this URL? Credentials go to no other: whoever shares the store could have named one."""
        return self.url == url


def is_off(environ: Mapping[str, str]) -> bool:
    return environ.get("PENSTOCK_MLFLOW", "").strip().lower() in _OFF


def configured(environ: Mapping[str, str] | None = None, folder: Path | None = None) -> TrackingTarget | None:
    """None: none. Raises UserError if what is written is no server."""
    env = os.environ if environ is None else environ
    if is_off(env):
        return None
    url, where = env.get("PENSTOCK_MLFLOW", "").strip(), "PENSTOCK_MLFLOW"
    written = {} if url else _in_file(folder or Path.cwd())
    if not url and written:
        url, where = written.get("url", ""), f"mlflow.url in {FILE}"
    if not url:
        # MLflow takes folders and databases too, for itself: those are none of ours.
        url, where = env.get("MLFLOW_TRACKING_URI", "").strip(), "MLFLOW_TRACKING_URI"
        if not url.startswith(("http://", "https://")):
            return None
    plain, user, password = _split(url, where)
    named = (
        env.get("PENSTOCK_MLFLOW_EXPERIMENT") or written.get("experiment") or env.get("MLFLOW_EXPERIMENT_NAME") or ""
    )
    if where.startswith("mlflow.url") and _of_another(env.get("MLFLOW_TRACKING_URI", "").strip(), plain):
        # Whoever wrote the file of this folder is not given what belongs to the server that the user has named.
        env = {name: text for name, text in env.items() if name not in _PERSONAL}
    given = Credentials(
        user=env.get("MLFLOW_TRACKING_USERNAME") or user,
        password=env.get("MLFLOW_TRACKING_PASSWORD") or password,
        token=env.get("MLFLOW_TRACKING_TOKEN", "").strip(),
        insecure=env.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in _TRUE,
        authority=env.get("MLFLOW_TRACKING_SERVER_CERT_PATH", ""),
        certificate=env.get("MLFLOW_TRACKING_CLIENT_CERT_PATH", ""),
    )
    return TrackingTarget(url=plain, experiment=named.strip(), largest=_largest(env), credentials=given)


def _of_another(named: str, url: str) -> bool:
    """Does MLflow's own variable name another server than this one?"""
    import urllib.parse

    if not named.startswith(("http://", "https://")):
        return False
    return urllib.parse.urlsplit(_split(named, "MLFLOW_TRACKING_URI")[0])[:2] != urllib.parse.urlsplit(url)[:2]


def _largest(env: Mapping[str, str]) -> int:
    from penstock.settings import size_in

    found = size_in(env, "PENSTOCK_MLFLOW_LARGEST")
    return LARGEST if found is None else found


def _split(url: str, where: str) -> tuple[str, str, str]:
    """(without user and password, user, password)"""
    import urllib.parse

    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urllib.parse.urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host:
        fix = "give the URL of a tracking server, as in http://mlflow.lab:5000; PENSTOCK_MLFLOW=no tells none"
        raise UserError(Problem("P911", f"{where} is not a URL of the form http://host or https://host", fix))
    plain = urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
    return plain, urllib.parse.unquote(parts.username or ""), urllib.parse.unquote(parts.password or "")


def _in_file(folder: Path) -> Mapping[str, str]:
    try:
        text = (folder / FILE).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):  # whoever reads the queues in it says so
        return {}
    return split(text)[0]


def split(text: str) -> tuple[Mapping[str, str], str]:
    """What `mlflow:` says in a file of queues, and the text without that document, each line where it was. Raises UserError."""
    if not _WRITTEN.search(text):
        return {}, text
    import yaml

    found: Mapping[str, str] = {}
    pieces: list[str] = []
    ends = [*(match.start() for match in _BREAK.finditer(text)), len(text)]
    start = 0
    for end in ends:
        piece = text[start:end]
        start = end
        if _WRITTEN.search(piece):
            try:
                document: Any = yaml.safe_load(piece)
            except yaml.YAMLError as error:
                raise _wrong(f"is not YAML: {str(error).splitlines()[0]}") from None
            found = _checked(document)
            piece = "---\n" * piece.startswith("---") + "\n" * (piece.count("\n") - piece.startswith("---"))
        pieces.append(piece)
    return found, "".join(pieces)


def _checked(document: Any) -> Mapping[str, str]:
    inside = document.get("mlflow") if isinstance(document, Mapping) else None
    if not isinstance(inside, Mapping) or set(document) != {"mlflow"}:
        raise _wrong("stands beside something else, or is not a map")
    odd = sorted(map(str, set(inside) - {"url", "experiment"}))
    if odd or not isinstance(inside.get("url"), str) or not isinstance(inside.get("experiment", ""), str):
        raise _wrong(f"has {odd[0]!r}, which is not known" if odd else "has no url, or one that is not text")
    return {name: str(value) for name, value in inside.items()}


def _wrong(what: str) -> UserError:
    fix = "write it as a document of its own, after ---:  mlflow: {url: http://mlflow.lab:5000, experiment: NAME}"
    return UserError(Problem("P911", f"mlflow in {FILE} {what}", fix))
