"""A pod template -> a step's action, mounts, resources and placement. Called by the readers of Argo, JobSet and Job.

One container is a Container; several containers, or init containers, are the parts of a Pod. What Kubernetes fills in when a pod starts is
filled in here if it is known: `$(NAME)` in words, environment from ConfigMaps and Secrets of the same library, and the downward API. Fields
that the model has no place for are kept in `extra`:

    pod         fields of the pod; `volumes` by the name of the mount, for those that are more than an empty folder
    container   fields of its one container; `env` holds the entries with `valueFrom`, by name
    containers  the same for each container of several, by its name

A number that differs from pod to pod of one gang is `$(PENSTOCK_REPLICA)`: each process knows its own.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.expressions.parse import Expr
from penstock.formats.documents import Document, items, part
from penstock.formats.pods import requests
from penstock.formats.pods.placement import placement_of
from penstock.formats.pods.secrets import from_entry, secret_value
from penstock.formats.pods.variables import INDEX_FIELD, INDEX_NAME, OURS, REPLICA, expand
from penstock.formats.reader import DocumentReader
from penstock.formats.values import brief, frozen, joined, listed, scalar
from penstock.graph import quantity
from penstock.graph.model import Container, Mount, Part, Placement, Pod, Value

_CONTAINER: Final = frozenset(
    {"name", "image", "command", "args", "env", "envFrom", "workingDir", "resources", "volumeMounts"}
)
_POD: Final = frozenset(
    {"containers", "initContainers", "nodeSelector", "tolerations", "affinity", "volumes", "activeDeadlineSeconds"}
)
_NOT_ASKED: Final = frozenset({"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"})
_GUESSED: Final = ("metadata.name", "metadata.uid", "spec.nodeName", "status.")
"""Fields of the downward API that differ on this machine."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The downward API of a pod, as far as it is known before the run."""

    fields: Mapping[str, Value] = field(default_factory=dict)
    """By the path that a fieldRef names: `metadata.labels['app']`."""
    index: Value = None
    """JOB_COMPLETION_INDEX, if its Job is Indexed."""
    claims: Mapping[str, str] = field(default_factory=dict)
    """Volumes that the document around the pod provides: name of the volume -> name of the mount."""


def facts_of(document: Document, pod: Mapping[str, Any], name: str, number: Value = "") -> dict[str, Value]:
    """The fields that every pod has. `pod`: its template, with metadata and spec; `number`: of the pod in its step."""
    called = joined([Expr.of("run.id"), f"-{name}", *(("-", number) if number else ())])
    account = part(pod, "spec").get("serviceAccountName")
    found: dict[str, Value] = {
        "metadata.name": called,
        "metadata.namespace": document.namespace or "default",
        "metadata.uid": Expr.of("run.id"),
        "spec.nodeName": "localhost",
        "spec.serviceAccountName": account if isinstance(account, str) else "default",
    }
    found |= dict.fromkeys(("status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"), "127.0.0.1")
    for kind in ("labels", "annotations"):
        for key, value in part(pod, "metadata", kind).items():
            found[f"metadata.{kind}['{key}']"] = scalar(value)
    return found


@dataclass(frozen=True, slots=True)
class PodRead:
    action: Container | Pod
    mounts: tuple[Mount, ...]
    resources: Mapping[str, int]
    placement: Placement | None
    deadline: int | None
    """Seconds that one pod may run."""
    extra: Mapping[str, Any]


def read_pod(reader: DocumentReader, template: Mapping[str, Any], path: str, facts: PodFacts, name: str) -> PodRead:
    """`template` has the metadata and spec of a pod, at `path`; `name` is that of its step."""
    return _PodReader(reader, template, path, facts, name).read()


class _PodReader:
    def __init__(
        self, reader: DocumentReader, template: Mapping[str, Any], path: str, facts: PodFacts, name: str
    ) -> None:
        self.reader = reader
        self.spec = reader.mapping(template, "spec", path)
        self.path, self.metadata_path = (f"{path}.{name}".lstrip(".") for name in ("spec", "metadata"))
        self.metadata = reader.mapping(template, "metadata", path)
        self.facts = facts
        self.name = name
        self.given = {str(one.get("name")): one for _, one in reader.members(self.spec, "volumes", self.path)}
        self.mounts: dict[str, Mount] = {}
        """By path."""
        self.volumes: dict[str, Mapping[str, Any]] = {}
        """By the name of the mount: those that the model has no place for."""

    def read(self) -> PodRead:
        reader, spec = self.reader, self.spec
        main = list(reader.members(spec, "containers", self.path))
        first = list(reader.members(spec, "initContainers", self.path))
        if not main:
            fix = "give spec.containers with a name, an image and a command"
            reader.wrong("P835", f"{self.path}.containers", "the pod has no containers", fix)
        leftovers: dict[str, dict[str, Any]] = {}
        parts: list[Part] = []
        for here, one in [*first, *main]:
            made, rest = self.container(one, here)
            if made.name in leftovers:
                reader.wrong("P835", f"{here}.name", f"two containers are named {made.name!r}", "rename one")
            leftovers[made.name] = rest
            parts.append(made)
        extra: dict[str, Any] = {"pod": self.leftovers()}
        if len(parts) == 1 and not first:
            action: Container | Pod = _alone(parts[0])
            own = parts[0].name
            extra["container"] = {**({"name": own} if own != self.name else {}), **leftovers[own]}
        else:
            action = Pod(parts=tuple(_ordered(parts, len(first), [one for _, one in first])))
            extra["containers"] = {name: rest for name, rest in leftovers.items() if rest}
        extra["metadata"] = self.labels()
        return PodRead(
            action=action,
            mounts=tuple(self.mounts.values()),
            resources=self.resources([*first, *main]),
            placement=placement_of(spec),
            deadline=reader.whole(spec, "activeDeadlineSeconds", self.path, 1),
            extra={name: value for name, value in extra.items() if value},
        )

    def resources(self, containers: list[tuple[str, Mapping[str, Any]]]) -> dict[str, int]:
        for here, one in containers:
            for kind in ("requests", "limits"):
                for name in requests.unknown_amounts(part(one, "resources", kind)):
                    at = f"{here}.resources.{kind}.{name}"
                    self.reader.changed(at, "this is not a quantity; it is left out", "Write 2, 500m or 4Gi.")
        return requests.resources_of(self.spec)

    def leftovers(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in self.spec.items():
            if name in _POD or value is None or (name == "restartPolicy" and value == "Never"):
                continue
            found[str(name)] = frozen(value)
            self.reader.kept(f"{self.path}.{name}")
        if self.volumes:
            found["volumes"] = tuple(self.volumes.values())
        return found

    def labels(self) -> dict[str, Any]:
        for name in self.metadata:
            self.reader.kept(f"{self.metadata_path}.{name}")
        return {str(name): frozen(value) for name, value in self.metadata.items() if value}

    # -- one container

    def container(self, one: Mapping[str, Any], path: str) -> tuple[Part, dict[str, Any]]:
        reader = self.reader
        name = reader.text(one, "name", path)
        image = reader.text(one, "image", path)
        if not name:
            reader.wrong("P835", f"{path}.name", "the container has no name", "give it one")
        if not image:
            reader.wrong("P835", f"{path}.image", "the container has no image", "name one: python:3.12")
        env, elsewhere = self.environment(one, path)
        if self.facts.index is not None and not any(ours in env for ours in OURS):
            env.setdefault(INDEX_NAME, self.facts.index)
        known = dict(env)
        self.mount(one, path, known)
        rest = self.container_leftovers(one, path)
        if elsewhere:
            rest["env"] = tuple(elsewhere)
        for ours in OURS:
            env.pop(ours, None)
        made = Part(
            name=name,
            image=image,
            command=tuple(expand(word, known) for word in reader.words(one, "command", path)),
            args=tuple(expand(word, known) for word in reader.words(one, "args", path)),
            env=env,
            workdir=reader.text(one, "workingDir", path) or None,
        )
        return made, rest

    def container_leftovers(self, one: Mapping[str, Any], path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        sidecar = one.get("restartPolicy") == "Always" and ".initContainers[" in path
        for name, value in one.items():
            if name in _CONTAINER or value is None or (name == "restartPolicy" and sidecar):
                continue
            found[str(name)] = frozen(value)
            if name in _NOT_ASKED:
                self.reader.changed(f"{path}.{name}", "handed on; on this machine it is not looked at")
            else:
                self.reader.kept(f"{path}.{name}")
        if not _said_by_requests(part(one, "resources")):
            found["resources"] = frozen(one["resources"])
            self.reader.kept(f"{path}.resources", "requests count; limits are handed on")
        unknown = [
            frozen(source) for here, source in self.reader.members(one, "envFrom", path) if self.source(source) is None
        ]
        if unknown:
            found["envFrom"] = tuple(unknown)
        return found

    # -- environment

    def environment(self, one: Mapping[str, Any], path: str) -> tuple[dict[str, Value], list[Any]]:
        """The known variables, and the entries with `valueFrom`, as they are written."""
        env: dict[str, Value] = {}
        elsewhere: dict[str, Any] = {}
        for here, source in self.reader.members(one, "envFrom", path):
            found = self.source(source)
            if found is None:
                self.missing(here, source)
                continue
            prefix = str(source.get("prefix") or "")
            for key, text in found.items():
                env[prefix + key] = text
                if isinstance(text, str):
                    elsewhere[prefix + key] = _as_entry(prefix + key, key, source)
        for here, entry in self.reader.members(one, "env", path):
            name = self.reader.text(entry, "name", here)
            if not name:
                self.reader.wrong("P835", here, "this variable has no name", "give it one")
                continue
            elsewhere.pop(name, None)
            secret = from_entry(entry)
            if secret is not None:
                env[name] = secret
                continue
            if entry.get("valueFrom") is None:
                env[name] = expand(scalar(entry.get("value")), env)
                continue
            if name not in OURS and (name != INDEX_NAME or not _is_index(entry)):
                elsewhere[name] = frozen(entry)
            given = REPLICA if name == OURS[0] else self.value_from(one, entry, here)
            if given is None:
                env.pop(name, None)
            else:
                env[name] = given
        return env, list(elsewhere.values())

    def value_from(self, one: Mapping[str, Any], entry: Mapping[str, Any], path: str) -> Value:
        """None if it is not known; then the report says so."""
        given = self.reader.mapping(entry, "valueFrom", path)
        here = f"{path}.valueFrom"
        if isinstance(given.get("fieldRef"), Mapping):
            return self.own_field(str(given["fieldRef"].get("fieldPath") or ""), f"{here}.fieldRef")
        if isinstance(given.get("resourceFieldRef"), Mapping):
            return self.own_resource(one, given["resourceFieldRef"], f"{here}.resourceFieldRef")
        for kind, key in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
            if isinstance(given.get(key), Mapping):
                ref = given[key]
                found = self.contents(kind, ref.get("name"))
                text = None if found is None else found.get(str(ref.get("key")))
                if text is None:
                    said = f"{kind} {brief(ref.get('name'))} has no {brief(ref.get('key'))} here"
                    self.reader.changed(
                        f"{here}.{key}", f"{said}; the variable is not set", f"Put the {kind} beside it."
                    )
                return text
        self.reader.changed(here, "this source of values is not known; the variable is not set")
        return None

    def own_field(self, name: str, path: str) -> Value:
        found = self.facts.fields.get(name)
        if found is None:
            self.reader.changed(path, f"{name[:80]} is not known on this machine; it is not set")
        elif name.startswith(_GUESSED):
            self.reader.changed(path, f"{name} is not that of a pod: on this machine there are only processes")
        return found

    def own_resource(self, one: Mapping[str, Any], ref: Mapping[str, Any], path: str) -> str | None:
        kind, _, name = str(ref.get("resource") or "").partition(".")
        asked = requests.amounts(part(one, "resources", kind))
        if kind == "requests":
            asked = requests.container_resources(one) | asked
        try:
            divisor = quantity.parse(ref.get("divisor") or "1") or 1000
        except (ValueError, TypeError):
            divisor = 1000
        if name in asked:
            return str(-(-asked[name] // divisor))
        self.reader.changed(path, f"the container says nothing of {kind}.{name}"[:120] + "; it is not set")
        return None

    def source(self, source: Mapping[str, Any]) -> dict[str, Value] | None:
        """Of one entry of envFrom."""
        for kind, key in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            if isinstance(source.get(key), Mapping):
                return self.contents(kind, source[key].get("name"))
        return None

    def missing(self, path: str, source: Mapping[str, Any]) -> None:
        names = [str(one.get("name")) for one in source.values() if isinstance(one, Mapping)]
        said = f"{' '.join(names)[:80] or 'this source'} is not here; its variables are not set"
        self.reader.changed(path, said, "Put the ConfigMap or Secret beside it.")

    def contents(self, kind: str, name: Any) -> dict[str, Value] | None:
        """Key -> text of a ConfigMap, or the secret of that key; None if it is not in the library."""
        document = self.reader.library.find(kind, name) if isinstance(name, str) else None
        if document is None:
            return None
        if kind == "Secret":
            keys = [*part(document.data, "data"), *part(document.data, "stringData")]
            return {str(key): secret_value(name, str(key)) for key in keys}
        plain, coded = "data", "binaryData"
        found: dict[str, Value] = {}
        for key, value in part(document.data, coded).items():
            try:
                found[str(key)] = base64.b64decode(str(value), validate=True).decode()
            except (binascii.Error, ValueError):
                self.reader.changed("", f"{key} of {kind} {name} is not text; it is left out")
        return found | {str(key): scalar(value) for key, value in part(document.data, plain).items()}

    # -- volumes

    def mount(self, one: Mapping[str, Any], path: str, env: Mapping[str, Value]) -> None:
        reader = self.reader
        for here, entry in reader.members(one, "volumeMounts", path):
            name, at = reader.text(entry, "name", here), reader.text(entry, "mountPath", here)
            if not at:
                reader.wrong("P835", f"{here}.mountPath", "the mount has no path", "say where: mountPath: /data")
                continue
            inner = reader.text(entry, "subPathExpr", here)
            sub_path = expand(inner, env) if inner else reader.text(entry, "subPath", here)
            made = self.made(name, self.given.get(name), here)
            if made is None:
                continue
            mount = Mount(
                name=made[0],
                path=at,
                scope=made[1],
                files=made[2],
                sub_path=sub_path,
                read_only=bool(entry.get("readOnly")),
            )
            other = self.mounts.setdefault(at, mount)
            if (other.name, other.sub_path) != (mount.name, mount.sub_path):
                reader.lost(here, f"two containers of the pod have different volumes at {at}; the first one counts")

    def made(
        self, name: str, volume: Mapping[str, Any] | None, path: str
    ) -> tuple[str, str, Mapping[str, Value]] | None:
        """(name of the mount, scope, files)."""
        if volume is None:
            if name in self.facts.claims:
                return self.facts.claims[name], "run", {}
            fix = f"add it to the pod's volumes; there are: {listed(self.given)}"
            self.reader.wrong("P832", f"{path}.name", f"there is no volume {name!r}", fix)
            return None
        if isinstance(volume.get("persistentVolumeClaim"), Mapping):
            claim = str(volume["persistentVolumeClaim"].get("claimName") or name)
            self.hand_on(claim, volume)
            return claim, "run", {}
        if any(volume.get(kind) is not None for kind in ("configMap", "secret", "projected", "downwardAPI")):
            self.hand_on(name, volume)
            return name, "given", self.files(volume, path)
        if volume.get("emptyDir") is not None or volume.get("ephemeral") is not None:
            if volume.get("emptyDir") != {}:
                self.hand_on(name, volume)
            return name, "task", {}
        kind = next((str(key) for key in volume if key != "name"), "nothing")
        self.hand_on(name, volume)
        if kind == "nothing":
            return name, "task", {}
        self.reader.changed(path, f"the volume is {kind}; on this machine it is a folder of the run, empty at first")
        return name, "run", {}

    def hand_on(self, name: str, volume: Mapping[str, Any]) -> None:
        if name not in self.volumes:
            self.volumes[name] = frozen({**volume, "name": name})

    def files(self, volume: Mapping[str, Any], path: str) -> dict[str, Value]:
        found: dict[str, Value] = {}
        sources: list[Mapping[str, Any]] = [volume]
        if isinstance(volume.get("projected"), Mapping):
            sources = [one for _, one in self.reader.members(volume["projected"], "sources", path)]
        for source in sources:
            for kind, key in (("ConfigMap", "configMap"), ("Secret", "secret")):
                if isinstance(source.get(key), Mapping):
                    found |= self.keys(kind, source[key], path)
            for _, item in self.reader.members(part(source, "downwardAPI"), "items", path):
                value = self.own_field(str(part(item, "fieldRef").get("fieldPath") or ""), path)
                if value is not None and self.is_inside(str(item.get("path")), path):
                    found[str(item.get("path"))] = value
        return found

    def keys(self, kind: str, ref: Mapping[str, Any], path: str) -> dict[str, Value]:
        name = ref.get("name") or ref.get("secretName")
        found = self.contents(kind, name)
        if found is None and kind == "Secret":
            keys = [str(one.get("key")) for _, one in self.reader.members(ref, "items", path)]
            named = {key: secret_value(name, key, ref.get("optional")) for key in keys}
            found = {key: value for key, value in named.items() if value is not None} or None
        if found is None:
            said = f"there is no {kind} {brief(name)} here; the folder is empty"
            self.reader.changed(path, said, f"Put the {kind} beside it.")
            return {}
        chosen = list(self.reader.members(ref, "items", path))
        names = (
            {str(one.get("key")): str(one.get("path")) for _, one in chosen} if chosen else {key: key for key in found}
        )
        return {to: found[key] for key, to in names.items() if key in found and self.is_inside(to, path)}

    def is_inside(self, name: str, path: str) -> bool:
        if name and not name.startswith("/") and ".." not in name.split("/"):
            return True
        self.reader.wrong("P835", path, f"the file {name[:60]!r} leads out of its folder", "give a relative path")
        return False


def _alone(one: Part) -> Container:
    return Container(image=one.image, command=one.command, args=one.args, env=one.env, workdir=one.workdir)


def _ordered(parts: list[Part], first: int, inits: list[Mapping[str, Any]]) -> Iterator[Part]:
    """Init containers one after another, sidecars beside all, the rest together at the end."""
    before: tuple[str, ...] = ()
    for number, one in enumerate(parts):
        stays = number < first and inits[number].get("restartPolicy") == "Always"
        yield Part(
            name=one.name,
            image=one.image,
            command=one.command,
            args=one.args,
            env=one.env,
            workdir=one.workdir,
            needs=() if stays else before,
            sidecar=stays,
        )
        if number < first and not stays:
            before = (one.name,)


def _said_by_requests(resources: Mapping[str, Any]) -> bool:
    """Do the requests say everything? Devices have limits that equal their requests."""
    if not resources:
        return True
    asked = requests.container_resources({"resources": resources})
    return (
        set(resources) <= {"requests", "limits"}
        and requests.amounts(part(resources, "requests")) == asked
        and requests.amounts(part(resources, "limits")) == {name: asked[name] for name in asked if "/" in name}
    )


def _is_index(entry: Mapping[str, Any]) -> bool:
    return part(entry, "valueFrom", "fieldRef").get("fieldPath") == INDEX_FIELD


def counts_replicas(spec: Mapping[str, Any]) -> bool:
    """Did Penstock write this pod for a gang? Then each of its pods is a replica, not a task."""
    return any(
        entry.get("name") == OURS[0] and _is_index(entry)
        for kind in ("containers", "initContainers")
        for _, one in items(spec, kind)
        for _, entry in items(one, "env")
    )


def _as_entry(name: str, key: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """One variable of an envFrom as an entry of its own."""
    kind = "configMap" if isinstance(source.get("configMapRef"), Mapping) else "secret"
    return {
        "name": name,
        "valueFrom": {f"{kind}KeyRef": {"name": str(source[f"{kind}Ref"].get("name")), "key": key}},
    }
