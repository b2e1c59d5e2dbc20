"""Workspaces and volumes of Tekton -> Mounts. Called by task, pipeline and workflow.

An emptyDir belongs to the task. A claim belongs to the run: here it is a folder that all tasks of the run share and that is deleted with it. A
ConfigMap or Secret among the documents becomes files.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.formats.documents import Library, part
from penstock.formats.pods.secrets import secret_value
from penstock.formats.report import Report
from penstock.formats.tekton.read.scope import KnownText, Located, Lookup, compose, frozen, legal, understood
from penstock.graph.model import Mount, Value

NOT_MOUNTED = "/tekton/not-mounted"
"""`$(workspaces.x.path)` for a step that may not see x."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is mounted."""

    scope: str
    name: str
    sub_path: Value = ""
    files: Mapping[str, str] = field(default_factory=dict)
    claim: str = ""
    read_only: bool = False

    @property
    def key(self) -> str:
        """Two with the same key are the same folder."""
        return repr((self.scope, self.name, self.sub_path, sorted(self.files)))


def folder_of(at: Located, name: str, library: Library, report: Report, lookup: Lookup) -> Folder:
    """The folder behind a workspace binding or a volume. `name`: its name in the declaration."""
    name = legal(name)
    sub_path = understood(at.word("subPath"), lookup).value
    if at.given("persistentVolumeClaim"):
        claim = _fixed(at.map("persistentVolumeClaim"), "claimName", lookup, report)
        report.changed(
            f"{at.path}.persistentVolumeClaim",
            f"the claim {claim!r} is a folder that lives as long as the run",
            "copy what must last elsewhere",
            at.source,
        )
        read_only = at.map("persistentVolumeClaim").flag("readOnly")
        return Folder("run", legal(f"claim-{claim}"), sub_path, claim=claim, read_only=read_only)
    if at.given("volumeClaimTemplate"):
        return Folder("run", name, sub_path)
    for kind in ("configMap", "secret", "projected"):
        if at.given(kind):
            return Folder("given", name, sub_path, _files(at, kind, library, report, lookup), read_only=True)
    other = next((key for key in sorted(at.data) if key not in _PLAIN), None)
    if other is not None:
        report.changed(
            f"{at.path}.{other}",
            f"{other} is not there outside its cluster: the folder is empty",
            "give the files by a ConfigMap beside the document",
            at.source,
        )
    return Folder("task", name, sub_path)


_PLAIN = frozenset({"name", "emptyDir", "subPath", "ephemeral"})


def _fixed(at: Located, name: str, lookup: Lookup, report: Report) -> str:
    """A name that must be known before the run."""
    known = understood(at.word(name), lookup)
    if isinstance(known.fixed, str):
        return known.fixed
    report.changed(f"{at.path}.{name}", "the name is known only when it runs", "write it out", at.source)
    return at.word(name)


# -- config maps and secrets ------------------------------------------------------------------------------------------


def _files(at: Located, kind: str, library: Library, report: Report, lookup: Lookup) -> dict[str, Value]:
    if kind != "projected":
        return _from_object(at.map(kind), kind, library, report, lookup)
    found: dict[str, Value] = {}
    for source in at.map("projected").maps("sources"):
        for inner in ("configMap", "secret"):
            if source.given(inner):
                found |= _from_object(source.map(inner), inner, library, report, lookup)
        for inner in ("serviceAccountToken", "downwardAPI", "clusterTrustBundle"):
            if source.given(inner):
                report.changed(f"{source.path}.{inner}", f"there is no {inner} outside a cluster", "", source.source)
    return found


def _from_object(at: Located, kind: str, library: Library, report: Report, lookup: Lookup) -> dict[str, Value]:
    """The files that a ConfigMap or Secret is mounted as."""
    name = _fixed(at, "secretName" if at.given("secretName") else "name", lookup, report)
    data = object_data(library, "ConfigMap" if kind == "configMap" else "Secret", name)
    if data is None and kind == "secret" and at.given("items"):
        named = {
            key: secret_value(name, key, at.flag("optional"))
            for key in (_plain(item, "key", lookup) for item in at.maps("items"))
        }
        data = {key: value for key, value in named.items() if value is not None}
    if data is None:
        if not at.flag("optional"):
            said = f"there is no {'ConfigMap' if kind == 'configMap' else 'Secret'} {name!r} among the documents"
            report.changed(at.path, f"{said}: the folder is empty", "put it into the file or beside it", at.source)
        return {}
    paths = {key: key for key in data}
    if at.given("items"):
        paths = {_plain(item, "path", lookup): _plain(item, "key", lookup) for item in at.maps("items")}
    files: dict[str, Value] = {}
    for path, key in paths.items():
        if key in data and _inside(path):
            files[path] = data[key]
        else:
            report.changed(at.path, f"{name} has nothing to lay at {path[:80]!r}", "", at.source)
    return files


def _plain(item: Located, name: str, lookup: Lookup) -> str:
    known = understood(item.word(name), lookup)
    return known.fixed if isinstance(known.fixed, str) else item.word(name)


def _inside(path: str) -> bool:
    return bool(path) and not path.startswith("/") and ".." not in path.split("/")


def object_data(library: Library, kind: str, name: str) -> dict[str, Value] | None:
    """Key -> text of a ConfigMap, or the secret of that key; None if it is not among the documents. Binary values are left out."""
    document = library.find(kind, name)
    if document is None:
        return None
    if kind == "Secret":
        keys = [*part(document.data, "data"), *part(document.data, "stringData")]
        return {str(key): secret_value(name, str(key)) for key in keys}
    found: dict[str, Value] = {}
    for key, text in part(document.data, "binaryData").items():
        decoded = _decoded(text)
        if decoded is not None:
            found[str(key)] = decoded
    for key, text in part(document.data, "data").items():
        found[str(key)] = text if isinstance(text, str) else str(text)
    return found


def _decoded(text: Any) -> str | None:
    try:
        return base64.b64decode(str(text)).decode()
    except (binascii.Error, ValueError):
        return None


# -- workspaces of one task -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace of a task. Without a folder it was not bound, which only an optional one may be."""

    name: str
    path: str
    folder: Folder | None
    read_only: bool = False

    def variable(self, what: str) -> str | None:
        if what == "bound":
            return "false" if self.folder is None else "true"
        if what == "path":
            return "" if self.folder is None else self.path
        if what == "claim":
            return "" if self.folder is None else self.folder.claim
        return f"ws-{self.name}" if what == "volume" else None


def join_path(outer: Value, inner: Value) -> Value:
    """A sub-folder of a sub-folder."""
    if outer == "" or inner == "":
        return inner if outer == "" else outer
    return compose([KnownText(outer), "/", KnownText(inner)]).value


class Mounts:
    """The folders of one step, by path."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._found: dict[str, tuple[Folder, bool]] = {}

    def add(self, folder: Folder, path: str, at: Located, read_only: bool = False) -> None:
        path = re.sub(r"/+", "/", path).rstrip("/") or "/"
        if not path.startswith("/") or ".." in path.split("/") or path == "/":
            raise at.error(
                "P835", f"{path[:140]!r} is not where a folder can be mounted", "give an absolute path: /data"
            )
        if isinstance(folder.sub_path, str) and ".." in folder.sub_path.split("/"):
            raise at.error(
                "P835", f"the subPath {folder.sub_path[:140]!r} leads out of the folder", "name a folder in it"
            )
        known = self._found.get(path)
        if known is not None and known[0].key != folder.key:
            self._report.changed(
                at.path,
                f"another folder is mounted at {path} for some steps: all of them see {known[0].name!r}",
                "mount it elsewhere",
                at.source,
            )
            return
        self._found[path] = (folder, (read_only or folder.read_only) and (known is None or known[1]))

    def has(self, path: str) -> bool:
        return path in self._found

    def paths(self) -> list[str]:
        return list(self._found)

    def made(self) -> tuple[Mount, ...]:
        """Names are unique, except for one folder at several paths."""
        names: dict[str, str] = {}
        for folder, _ in sorted(self._found.values(), key=lambda one: one[0].scope != "run"):
            identity = f"run {folder.name}" if folder.scope == "run" else repr(replace(folder, sub_path="").key)
            if identity not in names:
                names[identity] = folder.name if folder.scope == "run" else legal(folder.name, names.values())
        found = []
        for path, (folder, read_only) in self._found.items():
            identity = f"run {folder.name}" if folder.scope == "run" else repr(replace(folder, sub_path="").key)
            found.append(
                Mount(
                    name=names[identity],
                    path=path,
                    scope=folder.scope,
                    sub_path=folder.sub_path,
                    files=frozen(folder.files),
                    read_only=read_only,
                )
            )
        return tuple(found)


def volumes_of(
    places: Iterable[Located], library: Library, report: Report, lookup: Lookup
) -> dict[str, tuple[Folder, Located]]:
    """Name -> folder of the volumes that a task or a pod template declares; the last one of a name counts."""
    found: dict[str, tuple[Folder, Located]] = {}
    for at in places:
        for volume in at.maps("volumes"):
            name = str(understood(volume.name(), lookup).fixed)
            found[name] = (folder_of(volume, name, library, report, lookup), volume)
    return found
