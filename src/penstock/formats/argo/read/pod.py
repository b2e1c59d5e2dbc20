"""The pod of an Argo container, script or containerSet template -> a step's action, mounts, resources and placement. Called by leaf.

Argo makes a pod from the template, the template around it and the workflow's spec, and then patches it. This module does the same, reads the
result like any pod (pods.read), and then replaces the tags in its texts. Sidecars become init containers that stay, so that their requests
add up and they end with the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.errors import UserError
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.formats.argo.read.builder import DefinitionBuilder
from penstock.formats.argo.read.template import TemplateSpec, legal, text_of
from penstock.formats.argo.read.values import QuietScope, TextScope, constant_text, value_of
from penstock.formats.argo.scope import merge
from penstock.formats.documents import Document, items, part
from penstock.formats.pods.read import PodFacts, PodRead, facts_of, read_pod
from penstock.formats.reader import DocumentReader
from penstock.formats.values import joined
from penstock.graph.limits import NAME
from penstock.graph.model import Container, Mount, Part, Placement, Pod, Script, Value
from penstock.graph.order import NotOrdered, topological
from penstock.graph.text import read_yaml

MAIN: Final = "main"
_OF_SPEC: Final = (
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "hostAliases",
    "hostNetwork",
    "imagePullSecrets",
    "resourceClaims",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
)
_OF_TEMPLATE: Final = (
    "automountServiceAccountToken",
    "hostAliases",
    "priorityClassName",
    "resourceClaims",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
)
_PLACEMENT: Final = ("nodeSelector", "affinity", "tolerations")
_OURS: Final = frozenset({"dependencies", "mirrorVolumeMounts", "source"})
"""Fields of a container that only Argo has."""
_WHICH_CLAIM: Final = "which claim it is, is only known when it runs; here it is a folder of the run"
_OUTSIDE: Final = re.compile(r"(?:\A|/)\.\.(?:/|\Z)")


class _LocatedReader(DocumentReader):
    """Reports remarks about the composed pod at the place where the part was written."""

    def __init__(
        self, scope: TextScope, document: Document, library: Any, places: Mapping[str, str], home: str
    ) -> None:
        super().__init__(library, document)
        self.scope = scope
        self.places = places
        """`spec.containers[0]` -> `spec.templates[1].container`."""
        self.home = home

    def at(self, path: str) -> str:
        known = path
        while known and known not in self.places:
            known = known[: max(known.rfind("."), known.rfind("["), 0)]
        return self.places[known] + path[len(known) :] if known else self.home

    def wrong(self, code: str, path: str, message: str, fix: str) -> None:
        self.scope.notes.wrong(self.document, self.at(path), code, message, fix)

    def kept(self, path: str, message: str = "handed on as it is") -> None:
        self.scope.notes.kept(self.document, self.at(path), message)

    def changed(self, path: str, message: str, near: str = "") -> None:
        self.scope.notes.changed(self.document, self.at(path), message, near)

    def lost(self, path: str, message: str, near: str = "") -> None:
        self.scope.notes.lost(self.document, self.at(path), message, near)


@dataclass(frozen=True, slots=True)
class PodAction:
    """The action of a pod, with the other fields of its step."""

    action: Container | Script | Pod
    mounts: tuple[Mount, ...]
    resources: Mapping[str, int]
    placement: Placement | None
    extra: Mapping[str, Any]


def pod_of(template: TemplateSpec, scope: TextScope, builder: DefinitionBuilder, step: str) -> PodAction:
    """The action of a container, script or containerSet template."""
    spec, places = _described(template, scope, builder)
    metadata = merge(part(builder.context.root.spec, "podMetadata"), part(template.body, "metadata"))
    places["metadata"] = f"{template.path}.metadata"
    reader = _LocatedReader(scope, template.document, builder.context.library, places, template.path)
    pod = {"metadata": metadata, "spec": spec}
    claims = {
        name: name
        for _, one in items(builder.context.root.spec, "volumeClaimTemplates")
        if (name := text_of(part(one, "metadata").get("name")))
    }
    for _, one in (*items(spec, "containers"), *items(spec, "initContainers")):
        for _, mount in items(one, "volumeMounts"):
            if "{{" in str(mount.get("name")):
                scope.notes.changed(template.document, template.path, _WHICH_CLAIM)
                claims[str(mount["name"])] = legal(str(mount["name"]))
    facts = PodFacts(fields=facts_of(builder.context.root.document, pod, step), claims=claims)
    found = read_pod(reader, pod, "", facts, MAIN)
    action: Container | Script | Pod = found.action
    if template.kind == "containerSet":
        action = _in_set(template, found.action)
    elif template.kind == "script":
        action = _scripted(template, found.action)
    where = {
        str(one.get("name")): places[f"spec.{kind}[{number}]"]
        for kind in ("containers", "initContainers")
        for number, one in items(spec, kind)
        if f"spec.{kind}[{number}]" in places
    }
    if isinstance(action, Pod):
        _check_parts(action, scope, template, where)
    filled = _filled(action, scope, where)
    if not isinstance(filled, Pod) and filled.image == "" and part(template.body, template.kind).get("image"):
        path = f"{where.get(MAIN, template.path)}.image"
        scope.notes.wrong(template.document, path, "P835", "the name of the image is empty", "name one: python:3.12")
    return PodAction(filled, tuple(_mounts(found, scope, template)), found.resources, found.placement, found.extra)


# -- putting it together ----------------------------------------------------------------------------------------------


def _described(
    template: TemplateSpec, scope: TextScope, builder: DefinitionBuilder
) -> tuple[dict[str, Any], dict[str, str]]:
    """The pod template, and the path of each part in the Argo document."""
    body, root = template.body, builder.context.root
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
        take(name, body.get(name), template.path)
    take("podResources", body.get("podResources"), template.path, "resources")
    around = builder.template.body if builder.template.composite else {}
    for name in _PLACEMENT:
        for given, path in ((body, template.path), (around, builder.template.path), (root.spec, root.path)):
            if given.get(name):
                take(name, given[name], path)
                break
    _volumes(spec, places, template, builder)
    _containers(spec, places, template)
    return _patched(_settled(spec, scope, template), scope, template, builder), places


def _volumes(spec: dict[str, Any], places: dict[str, str], template: TemplateSpec, builder: DefinitionBuilder) -> None:
    found: list[Mapping[str, Any]] = []
    root = builder.context.root
    own = {text_of(one.get("name")) for _, one in items(template.body, "volumes")}
    for given, path in ((root.spec, root.path), (template.body, template.path)):
        for number, one in items(given, "volumes"):
            if given is template.body or text_of(one.get("name")) not in own:
                places[f"spec.volumes[{len(found)}]"] = f"{path}.volumes[{number}]"
                found.append(one)
    if found:
        spec["volumes"] = found


def _containers(spec: dict[str, Any], places: dict[str, str], template: TemplateSpec) -> None:
    main: list[Mapping[str, Any]] = []
    if template.kind == "containerSet":
        shared = part(template.body, "containerSet").get("volumeMounts")
        for number, one in items(part(template.body, "containerSet"), "containers"):
            places[f"spec.containers[{len(main)}]"] = f"{template.path}.containerSet.containers[{number}]"
            main.append(_plain(one, shared))
    else:
        places["spec.containers[0]"] = f"{template.path}.{template.kind}"
        main.append({**_plain(part(template.body, template.kind)), "name": MAIN})
    mounts = [mount for one in main for _, mount in items(one, "volumeMounts")]
    first: list[Mapping[str, Any]] = []
    for kind, stays in (("initContainers", False), ("sidecars", True)):
        for number, one in items(template.body, kind):
            places[f"spec.initContainers[{len(first)}]"] = f"{template.path}.{kind}[{number}]"
            made = _plain(one, mounts if one.get("mirrorVolumeMounts") is True else None)
            first.append({**made, "restartPolicy": "Always"} if stays else made)
    spec["containers"] = main
    if first:
        spec["initContainers"] = first


def _plain(one: Mapping[str, Any], more: Any = None) -> dict[str, Any]:
    """A container without Argo's own fields, and with further mounts."""
    found = {str(name): value for name, value in one.items() if name not in _OURS}
    if isinstance(more, list) and more:
        own = found.get("volumeMounts")
        found["volumeMounts"] = [*(own if isinstance(own, list) else ()), *more]
    return found


def _settled(spec: dict[str, Any], scope: TextScope, template: TemplateSpec) -> dict[str, Any]:
    """Replaces tags in fields that must be known before the run: amounts, selectors, volumes and mounts."""
    found = dict(spec)
    for name in ("resources", *_PLACEMENT):
        if name in found:
            found[name] = _settle(found[name], scope, template)
    if "volumes" in found:
        found["volumes"] = _settle(found["volumes"], QuietScope(scope), template)
    for name in ("containers", "initContainers"):
        if name in found:
            found[name] = [
                {
                    key: _settle(value, scope, template) if key in ("resources", "volumeMounts") else value
                    for key, value in one.items()
                }
                for one in found[name]
            ]
    for volume in found.get("volumes", ()):
        claim = volume.get("persistentVolumeClaim")
        if isinstance(claim, dict) and "{{" in str(claim.get("claimName")):
            scope.notes.changed(template.document, template.path, _WHICH_CLAIM)
            claim["claimName"] = volume.get("name")
    return found


def _settle(value: Any, scope: TextScope, template: TemplateSpec) -> Any:
    if isinstance(value, str) and "{{" in value:
        known = constant_text(value, scope, template.path)
        if known is None:
            return value
        message = f"{value[:60]} is {known[:60]}, as far as can be told before the run"
        scope.notes.changed(template.document, template.path, message)
        return known
    if isinstance(value, Mapping):
        return {key: _settle(item, scope, template) for key, item in value.items()}
    return [_settle(item, scope, template) for item in value] if isinstance(value, list) else value


def _patched(
    spec: dict[str, Any], scope: TextScope, template: TemplateSpec, builder: DefinitionBuilder
) -> dict[str, Any]:
    """podSpecPatch of the workflow, then of the template: YAML or JSON."""
    root = builder.context.root
    for around, at, document in (
        (root.spec, root.path, root.document),
        (template.body, template.path, template.document),
    ):
        text = text_of(around.get("podSpecPatch"))
        path = f"{at}.podSpecPatch"
        known = constant_text(text, scope, path) if text else None
        if text and known is None:
            scope.notes.lost(document, path, "what it says is only known when it runs; the pod is not patched")
        if not known or not known.strip():
            continue
        patch, message = None, "it is not a mapping"
        try:
            patch, _ = read_yaml(known, document.file)
        except UserError as error:
            message = error.problems[0].message
        if not isinstance(patch, Mapping):
            fix = "give the fields of a pod as YAML or JSON"
            scope.notes.wrong(document, path, "P835", f"the patch cannot be read: {message[:120]}", fix)
            continue
        spec = _merged(spec, patch)
        scope.notes.changed(document, path, "it is merged into the pod when the file is read")
    return spec


def _merged(spec: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Drops patches of containers that Argo adds to every pod."""
    cut = {name: value for name, value in patch.items() if value is not None}
    for name in ("containers", "initContainers"):
        known = {one.get("name") for one in spec.get(name, ())}
        if name in cut:
            cut[name] = [one for _, one in items(cut, name) if one.get("name") in known]
    found: dict[str, Any] = merge(spec, {name: value for name, value in cut.items() if value != []})
    return found


# -- what comes out ---------------------------------------------------------------------------------------------------


def _in_set(template: TemplateSpec, action: Container | Pod) -> Container | Pod:
    """The containers of a containerSet, with their dependencies."""
    if not isinstance(action, Pod):
        return action
    names = {one.name for one in action.parts}
    waits: dict[str, tuple[str, ...]] = {}
    for _, one in items(part(template.body, "containerSet"), "containers"):
        listed = one.get("dependencies")
        ups = (text_of(up) for up in listed) if isinstance(listed, list) else ()
        waits[text_of(one.get("name")) or ""] = tuple(dict.fromkeys(up for up in ups if up in names and up is not None))
    return Pod(parts=tuple(replace(one, needs=waits.get(one.name) or one.needs) for one in action.parts))


def _check_parts(pod: Pod, scope: TextScope, template: TemplateSpec, where: Mapping[str, str]) -> None:
    for one in pod.parts:
        if not NAME.match(one.name):
            at = where.get(one.name, template.path)
            message = f"{one.name[:60]!r} is no name for a container"
            scope.notes.wrong(template.document, f"{at}.name", "P835", message, "use small letters, digits and dashes")
    try:
        topological({one.name: set(one.needs or ()) for one in pod.parts})
    except NotOrdered as cycle:
        message = f"these containers wait for one another: {' → '.join([*cycle.names, cycle.names[0]])[:200]}"
        scope.notes.wrong(template.document, template.path, "P833", message, "remove one of the dependencies")


def _scripted(template: TemplateSpec, action: Container | Pod) -> Script | Pod:
    source = text_of(part(template.body, "script").get("source")) or ""
    if isinstance(action, Container):
        words = (*action.command, *action.args) or ("sh",)
        return Script(source=source, command=words, image=action.image, env=action.env, workdir=action.workdir)
    parts = [
        replace(one, source=source, command=(*one.command, *one.args) or ("sh",), args=()) if one.name == MAIN else one
        for one in action.parts
    ]
    return Pod(parts=tuple(parts))


def _filled(action: Container | Script | Pod, scope: TextScope, where: Mapping[str, str]) -> Container | Script | Pod:
    """Replaces tags in all texts. `where`: container -> its path."""

    def fill(value: Value, path: str) -> Value:
        if isinstance(value, str):
            return value_of(value, scope, path)
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
        # Only parts of a pod may have a working directory that is not known yet.
        return Pod(parts=(Part(name=MAIN, needs=(), **fields),))
    return replace(action, **fields)


def _pieces(value: Value) -> tuple[str | Expr, ...]:
    return value.parts if isinstance(value, Template) else (value,)


def _mounts(found: PodRead, scope: TextScope, template: TemplateSpec) -> Iterator[Mount]:
    for mount in found.mounts:
        if not mount.path.startswith("/") or _OUTSIDE.search(mount.path):
            message = f"{mount.path[:60]!r} is not where a volume can be mounted"
            scope.notes.wrong(
                template.document, template.path, "P835", message, "give an absolute path: mountPath: /data"
            )
            continue
        inner = value_of(mount.sub_path, scope, template.path) if isinstance(mount.sub_path, str) else mount.sub_path
        yield replace(mount, name=mount.name if NAME.match(mount.name) else legal(mount.name), sub_path=inner)
