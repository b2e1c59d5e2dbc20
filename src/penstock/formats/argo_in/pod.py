"""The pod of an Argo container, script or containerSet template -> a step's action, mounts, resources and placement. Called by leaf.

Argo makes a pod from the template, the template around it and the workflow's spec, and then patches it. The same is done here, and
what comes out is read as any pod is (pod_read); after that the tags in its texts are replaced. Sidecars go in as containers that
stay, so that they add up with the others and end with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.errors import UserError
from penstock.formats.argo_in.frame import Frame
from penstock.formats.argo_in.sheet import Sheet, legal, text_of
from penstock.formats.argo_in.values import Place, Quiet, constant_text, value_of
from penstock.formats.argo_scope import merge
from penstock.formats.documents import Document, items, part
from penstock.formats.kube import Reader, joined
from penstock.formats.pod_read import Facts, PodRead, facts_of, read_pod
from penstock.graph.expr import Expr
from penstock.graph.model import Container, Mount, Part, Placement, Pod, Script, Value
from penstock.graph.order import NotOrdered, topological
from penstock.graph.places import NAME
from penstock.graph.template import Template
from penstock.graph.text import read_yaml

MAIN: Final = "main"
_OF_SPEC: Final = (
    "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "hostAliases", "hostNetwork", "imagePullSecrets", "resourceClaims",
    "schedulerName", "securityContext", "serviceAccountName",
)  # fmt: skip
_OF_TEMPLATE: Final = (
    "automountServiceAccountToken", "hostAliases", "priorityClassName", "resourceClaims", "schedulerName", "securityContext",
    "serviceAccountName",
)  # fmt: skip
_PLACEMENT: Final = ("nodeSelector", "affinity", "tolerations")
_OURS: Final = frozenset({"dependencies", "mirrorVolumeMounts", "source"})
"""Fields of a container that only Argo has."""
_WHICH_CLAIM: Final = "which claim it is, is only known when it runs; here it is a folder of the run"
_OUTSIDE: Final = re.compile(r"(?:\A|/)\.\.(?:/|\Z)")


class _Located(Reader):
    """Remarks about the pod that was put together are told of the place where the part was written."""

    def __init__(self, place: Place, document: Document, library: Any, places: Mapping[str, str], home: str) -> None:
        super().__init__(library, document)
        self.place = place
        self.places = places
        """`spec.containers[0]` -> `spec.templates[1].container`."""
        self.home = home

    def at(self, path: str) -> str:
        known = path
        while known and known not in self.places:
            known = known[: max(known.rfind("."), known.rfind("["), 0)]
        return self.places[known] + path[len(known) :] if known else self.home

    def wrong(self, code: str, path: str, message: str, fix: str) -> None:
        self.place.notes.wrong(self.document, self.at(path), code, message, fix)

    def kept(self, path: str, message: str = "handed on as it is") -> None:
        self.place.notes.kept(self.document, self.at(path), message)

    def changed(self, path: str, message: str, near: str = "") -> None:
        self.place.notes.changed(self.document, self.at(path), message, near)

    def lost(self, path: str, message: str, near: str = "") -> None:
        self.place.notes.lost(self.document, self.at(path), message, near)


@dataclass(frozen=True, slots=True)
class Made:
    """What becomes of a pod."""

    action: Container | Script | Pod
    mounts: tuple[Mount, ...]
    resources: Mapping[str, int]
    placement: Placement | None
    extra: Mapping[str, Any]


def pod_of(sheet: Sheet, place: Place, frame: Frame, step: str) -> Made:
    """Of a template of type container, script or containerSet."""
    spec, places = _described(sheet, place, frame)
    metadata = merge(part(frame.reading.root.spec, "podMetadata"), part(sheet.body, "metadata"))
    places["metadata"] = f"{sheet.path}.metadata"
    reader = _Located(place, sheet.document, frame.reading.library, places, sheet.path)
    pod = {"metadata": metadata, "spec": spec}
    claims = {
        name: name
        for _, one in items(frame.reading.root.spec, "volumeClaimTemplates")
        if (name := text_of(part(one, "metadata").get("name")))
    }
    for _, one in (*items(spec, "containers"), *items(spec, "initContainers")):
        for _, mount in items(one, "volumeMounts"):
            if "{{" in str(mount.get("name")):
                place.notes.changed(sheet.document, sheet.path, _WHICH_CLAIM)
                claims[str(mount["name"])] = legal(str(mount["name"]))
    facts = Facts(fields=facts_of(frame.reading.root.document, pod, step), claims=claims)
    found = read_pod(reader, pod, "", facts, MAIN)
    action: Container | Script | Pod = found.action
    if sheet.kind == "containerSet":
        action = _in_set(sheet, found.action)
    elif sheet.kind == "script":
        action = _scripted(sheet, found.action)
    where = {
        str(one.get("name")): places[f"spec.{kind}[{number}]"]
        for kind in ("containers", "initContainers")
        for number, one in items(spec, kind)
        if f"spec.{kind}[{number}]" in places
    }
    if isinstance(action, Pod):
        _check_parts(action, place, sheet, where)
    filled = _filled(action, place, where)
    if not isinstance(filled, Pod) and filled.image == "" and part(sheet.body, sheet.kind).get("image"):
        path = f"{where.get(MAIN, sheet.path)}.image"
        place.notes.wrong(sheet.document, path, "P835", "the name of the image is empty", "name one: python:3.12")
    return Made(filled, tuple(_mounts(found, place, sheet)), found.resources, found.placement, found.extra)


# -- putting it together ----------------------------------------------------------------------------------------------


def _described(sheet: Sheet, place: Place, frame: Frame) -> tuple[dict[str, Any], dict[str, str]]:
    """The pod in Kubernetes' words, and where each part of it was written."""
    body, root = sheet.body, frame.reading.root
    spec: dict[str, Any] = {}
    places: dict[str, str] = {}

    def take(name: str, value: Any, path: str, into: str = "") -> None:
        if value not in (None, {}, []):
            spec[into or name] = value
            places[f"spec.{into or name}"] = f"{path}.{name}"

    for name in _OF_SPEC:
        take(name, root.spec.get(name), root.path)
    take("podPriorityClassName", root.spec.get("podPriorityClassName"), root.path, "priorityClassName")
    take("podResources", root.spec.get("podResources"), root.path, "resources")
    for name in _OF_TEMPLATE:
        take(name, body.get(name), sheet.path)
    take("podResources", body.get("podResources"), sheet.path, "resources")
    around = frame.sheet.body if frame.sheet.composite else {}
    for name in _PLACEMENT:
        for given, path in ((body, sheet.path), (around, frame.sheet.path), (root.spec, root.path)):
            if given.get(name):
                take(name, given[name], path)
                break
    _volumes(spec, places, sheet, frame)
    _containers(spec, places, sheet)
    return _patched(_settled(spec, place, sheet), place, sheet, frame), places


def _volumes(spec: dict[str, Any], places: dict[str, str], sheet: Sheet, frame: Frame) -> None:
    found: list[Mapping[str, Any]] = []
    root = frame.reading.root
    own = {text_of(one.get("name")) for _, one in items(sheet.body, "volumes")}
    for given, path in ((root.spec, root.path), (sheet.body, sheet.path)):
        for number, one in items(given, "volumes"):
            if given is sheet.body or text_of(one.get("name")) not in own:
                places[f"spec.volumes[{len(found)}]"] = f"{path}.volumes[{number}]"
                found.append(one)
    if found:
        spec["volumes"] = found


def _containers(spec: dict[str, Any], places: dict[str, str], sheet: Sheet) -> None:
    main: list[Mapping[str, Any]] = []
    if sheet.kind == "containerSet":
        shared = part(sheet.body, "containerSet").get("volumeMounts")
        for number, one in items(part(sheet.body, "containerSet"), "containers"):
            places[f"spec.containers[{len(main)}]"] = f"{sheet.path}.containerSet.containers[{number}]"
            main.append(_plain(one, shared))
    else:
        places["spec.containers[0]"] = f"{sheet.path}.{sheet.kind}"
        main.append({**_plain(part(sheet.body, sheet.kind)), "name": MAIN})
    mounts = [mount for one in main for _, mount in items(one, "volumeMounts")]
    first: list[Mapping[str, Any]] = []
    for kind, stays in (("initContainers", False), ("sidecars", True)):
        for number, one in items(sheet.body, kind):
            places[f"spec.initContainers[{len(first)}]"] = f"{sheet.path}.{kind}[{number}]"
            made = _plain(one, mounts if one.get("mirrorVolumeMounts") is True else None)
            first.append({**made, "restartPolicy": "Always"} if stays else made)
    spec["containers"] = main
    if first:
        spec["initContainers"] = first


def _plain(one: Mapping[str, Any], more: Any = None) -> dict[str, Any]:
    """A container without what only Argo has, and with further mounts."""
    found = {str(name): value for name, value in one.items() if name not in _OURS}
    if isinstance(more, list) and more:
        own = found.get("volumeMounts")
        found["volumeMounts"] = [*(own if isinstance(own, list) else ()), *more]
    return found


def _settled(spec: dict[str, Any], place: Place, sheet: Sheet) -> dict[str, Any]:
    """Tags in what has to be known before a pod can be placed: amounts, selectors, volumes and where they go."""
    found = dict(spec)
    for name in ("resources", *_PLACEMENT):
        if name in found:
            found[name] = _settle(found[name], place, sheet)
    if "volumes" in found:
        found["volumes"] = _settle(found["volumes"], Quiet(place), sheet)
    for name in ("containers", "initContainers"):
        if name in found:
            found[name] = [
                {
                    key: _settle(value, place, sheet) if key in ("resources", "volumeMounts") else value
                    for key, value in one.items()
                }
                for one in found[name]
            ]
    for volume in found.get("volumes", ()):
        claim = volume.get("persistentVolumeClaim")
        if isinstance(claim, dict) and "{{" in str(claim.get("claimName")):
            place.notes.changed(sheet.document, sheet.path, _WHICH_CLAIM)
            claim["claimName"] = volume.get("name")
    return found


def _settle(value: Any, place: Place, sheet: Sheet) -> Any:
    if isinstance(value, str) and "{{" in value:
        known = constant_text(value, place, sheet.path)
        if known is None:
            return value
        said = f"{value[:60]} is {known[:60]}, as far as can be told before the run"
        place.notes.changed(sheet.document, sheet.path, said)
        return known
    if isinstance(value, Mapping):
        return {key: _settle(item, place, sheet) for key, item in value.items()}
    return [_settle(item, place, sheet) for item in value] if isinstance(value, list) else value


def _patched(spec: dict[str, Any], place: Place, sheet: Sheet, frame: Frame) -> dict[str, Any]:
    """podSpecPatch of the workflow, then of the template: YAML or JSON."""
    root = frame.reading.root
    for around, at, document in ((root.spec, root.path, root.document), (sheet.body, sheet.path, sheet.document)):
        text = text_of(around.get("podSpecPatch"))
        path = f"{at}.podSpecPatch"
        known = constant_text(text, place, path) if text else None
        if text and known is None:
            place.notes.lost(document, path, "what it says is only known when it runs; the pod is not patched")
        if not known or not known.strip():
            continue
        patch, said = None, "it is no mapping"
        try:
            patch, _ = read_yaml(known, document.file)
        except UserError as error:
            said = error.problems[0].message
        if not isinstance(patch, Mapping):
            fix = "give the fields of a pod as YAML or JSON"
            place.notes.wrong(document, path, "P835", f"the patch cannot be read: {said[:120]}", fix)
            continue
        spec = _merged(spec, patch)
        place.notes.changed(document, path, "it is merged into the pod when the file is read")
    return spec


def _merged(spec: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Containers that Argo adds to every pod are not here to be patched."""
    cut = {name: value for name, value in patch.items() if value is not None}
    for name in ("containers", "initContainers"):
        known = {one.get("name") for one in spec.get(name, ())}
        if name in cut:
            cut[name] = [one for _, one in items(cut, name) if one.get("name") in known]
    found: dict[str, Any] = merge(spec, {name: value for name, value in cut.items() if value != []})
    return found


# -- what comes out ---------------------------------------------------------------------------------------------------


def _in_set(sheet: Sheet, action: Container | Pod) -> Container | Pod:
    """The containers of a set wait for those they name."""
    if not isinstance(action, Pod):
        return action
    names = {one.name for one in action.parts}
    waits: dict[str, tuple[str, ...]] = {}
    for _, one in items(part(sheet.body, "containerSet"), "containers"):
        listed = one.get("dependencies")
        ups = (text_of(up) for up in listed) if isinstance(listed, list) else ()
        waits[text_of(one.get("name")) or ""] = tuple(dict.fromkeys(up for up in ups if up in names and up is not None))
    return Pod(parts=tuple(replace(one, needs=waits.get(one.name) or one.needs) for one in action.parts))


def _check_parts(pod: Pod, place: Place, sheet: Sheet, where: Mapping[str, str]) -> None:
    for one in pod.parts:
        if not NAME.match(one.name):
            at = where.get(one.name, sheet.path)
            said = f"{one.name[:60]!r} is no name for a container"
            place.notes.wrong(sheet.document, f"{at}.name", "P835", said, "use small letters, digits and dashes")
    try:
        topological({one.name: set(one.needs or ()) for one in pod.parts})
    except NotOrdered as cycle:
        said = f"these containers wait for one another: {' → '.join([*cycle.names, cycle.names[0]])[:200]}"
        place.notes.wrong(sheet.document, sheet.path, "P833", said, "remove one of the dependencies")


def _scripted(sheet: Sheet, action: Container | Pod) -> Script | Pod:
    source = text_of(part(sheet.body, "script").get("source")) or ""
    if isinstance(action, Container):
        words = (*action.command, *action.args) or ("sh",)
        return Script(source=source, command=words, image=action.image, env=action.env, workdir=action.workdir)
    parts = [
        replace(one, source=source, command=(*one.command, *one.args) or ("sh",), args=()) if one.name == MAIN else one
        for one in action.parts
    ]
    return Pod(parts=tuple(parts))


def _filled(action: Container | Script | Pod, place: Place, where: Mapping[str, str]) -> Container | Script | Pod:
    """Tags in all its texts. `where`: the path of each container by its name."""

    def fill(value: Value, path: str) -> Value:
        if isinstance(value, str):
            return value_of(value, place, path)
        if isinstance(value, Template):
            return joined([one for part in value.parts for one in _pieces(fill(part, path))])
        return value

    def words(given: tuple[Value, ...], path: str) -> tuple[Value, ...]:
        return tuple(fill(word, f"{path}[{number}]") for number, word in enumerate(given))

    def filled(one: Any, at: str) -> dict[str, Any]:
        found = {
            "image": fill(one.image, f"{at}.image"),
            "command": words(one.command, f"{at}.command"),
            "env": {name: fill(value, f"{at}.env") for name, value in one.env.items()},
            "workdir": fill(one.workdir, f"{at}.workingDir") if one.workdir else None,
        }
        if not isinstance(one, Script):
            found["args"] = words(one.args, f"{at}.args")
        if not isinstance(one, Container):
            found["source"] = fill(one.source, f"{at}.source") if one.source is not None else None
        return found

    if isinstance(action, Pod):
        return Pod(parts=tuple(replace(one, **filled(one, where.get(one.name, ""))) for one in action.parts))
    fields = filled(action, where.get(MAIN, ""))
    if isinstance(fields["workdir"], Expr | Template):
        # Only the parts of a pod may start in a folder that is not known yet.
        return Pod(parts=(Part(name=MAIN, needs=(), **fields),))
    return replace(action, **fields)


def _pieces(value: Value) -> tuple[str | Expr, ...]:
    return value.parts if isinstance(value, Template) else (value,)


def _mounts(found: PodRead, place: Place, sheet: Sheet) -> Iterator[Mount]:
    for mount in found.mounts:
        if not mount.path.startswith("/") or _OUTSIDE.search(mount.path):
            said = f"{mount.path[:60]!r} is not where a volume can be mounted"
            place.notes.wrong(sheet.document, sheet.path, "P835", said, "give an absolute path: mountPath: /data")
            continue
        inner = value_of(mount.sub_path, place, sheet.path) if isinstance(mount.sub_path, str) else mount.sub_path
        yield replace(mount, name=mount.name if NAME.match(mount.name) else legal(mount.name), sub_path=inner)
