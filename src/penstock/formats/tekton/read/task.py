"""A Task with its arguments -> inputs, action, outputs and resources of a step. Called by pipeline and workflow.

A TaskRun is one pod: its steps are parts that run one after another, its sidecars are parts that run beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.expressions.evaluate import to_text
from penstock.expressions.types import Type, optional
from penstock.formats.pods.placement import placement_of
from penstock.formats.pods.requests import merged
from penstock.formats.tekton.read.mounts import Folder, Mounts, join_path, volumes_of
from penstock.formats.tekton.read.parts import PartReader, ReadPart
from penstock.formats.tekton.read.resources import Asked, asked, overridden, total
from penstock.formats.tekton.read.scope import Located, declared_type, frozen, legal, understood
from penstock.formats.tekton.read.task_scope import RESULTS, STEPS, TaskCall, TaskScope, TektonContext
from penstock.graph.model import Action, Cache, Container, Input, Mount, Output, Part, Placement, Pod, Step, expressions

IMPLICIT = {
    "/tekton/home": "tekton-home",
    "/workspace": "workspace",
    "/tekton/creds": "tekton-creds",
    STEPS: "tekton-steps",
    RESULTS: "tekton-results",
}
"""Folders that exist without being declared; mounted if a task names them."""


@dataclass(slots=True, kw_only=True)
class StepBody:
    """Action, outputs and resources of a step."""

    action: Action
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    mounts: tuple[Mount, ...] = ()
    resources: Mapping[str, int]
    placement: Placement | None = None
    extra: Mapping[str, Any]

    def step(self, **fields: Any) -> Step:
        return Step(
            action=self.action,
            inputs=self.inputs,
            outputs=self.outputs,
            mounts=self.mounts,
            resources=self.resources,
            placement=self.placement,
            extra=self.extra,
            cache=Cache(enabled=False),
            **fields,
        )


def read_task(context: TektonContext, call: TaskCall) -> StepBody:
    """Raises DocumentError."""
    names = TaskScope(context, call)
    made = _parts(names)
    if not any(not one.part.sidecar for one in made):
        raise call.spec.error("P835", f"the task {call.task!r} has no steps", "give it at least one")
    pod = _pod_template(names)
    mounts = _mounts(names, made, call.templates)
    parts = tuple(one.part for one in made)
    outputs = tuple(_output(names, result, parts) for result in names.results.values())
    return StepBody(
        action=Pod(parts=parts),
        inputs=tuple(names.inputs.values()),
        outputs=outputs,
        mounts=mounts,
        resources=_resources(names),
        placement=_placement(names, pod),
        extra={**_extra(names, made, pod), **_samples(names)},
    )


def stand_in(
    call_extra: Mapping[str, Any], why: str, outputs: Mapping[str, Type], inputs: tuple[Input, ...]
) -> StepBody:
    """For a missing task: the step can be planned and dry-run, not run."""
    return StepBody(
        action=Container(image="unresolved"),
        inputs=inputs,
        outputs=tuple(Output(name=name, type=kind) for name, kind in outputs.items()),
        resources={},
        extra={"unrunnable": why, **call_extra},
    )


def _parts(names: TaskScope) -> list[ReadPart]:
    found: list[ReadPart] = []
    taken: dict[str, None] = {}
    for field, sidecar in (("steps", False), ("sidecars", True)):
        for number, at in enumerate(names.call.spec.maps(field)):
            reader = PartReader(names, at, number, sidecar, taken)
            taken[reader.name] = None
            found.append(reader.made())
    return found


def _output(names: TaskScope, result: Located, parts: tuple[Part, ...]) -> Output:
    """A result that is not read may be absent; one that is read must exist."""
    name = result.name()
    kind = declared_type(result)
    path = f"{RESULTS}/{name}" if name != names.printed else "/dev/stdout"
    if result.given("value"):
        path = _step_result(names, result, parts) or path
    return Output(name=legal(name, variable=True), type=kind if name in names.call.read else optional(kind), path=path)


def _samples(names: TaskScope) -> dict[str, Any]:
    """Example arrays and objects for a dry run, which writes no results."""
    found = {
        legal(name, variable=True): names.context.sample(declared_type(result), result)
        for name, result in names.results.items()
        if declared_type(result).name != "str"
    }
    return {"sample": found} if found else {}


def _step_result(names: TaskScope, result: Located, parts: tuple[Part, ...]) -> str | None:
    """`value: $(steps.a.results.r)`: the file that the step writes."""
    from penstock.formats.tekton.variables import Var, split_vars

    text = result.at("value").text() if not isinstance(result.at("value").data, Mapping | list) else ""
    match split_vars(text):
        case [Var(path=("steps", step, "results", *rest))]:
            for part in parts:
                if part.name == step and ".".join(rest) in part.results:
                    return part.results[".".join(rest)]
    names.context.report.changed(
        f"{result.path}.value",
        "it is read from the file of the result instead",
        "name a result of a step",
        result.source,
    )
    return None


# -- folders ----------------------------------------------------------------------------------------------------------


def _mounts(names: TaskScope, made: list[ReadPart], templates: tuple[Located, ...]) -> tuple[Mount, ...]:
    report = names.context.report
    found = Mounts(report)
    for at, name, path in (usage for one in made for usage in one.workspaces):
        known = names.workspaces[name]
        assert known.folder is not None
        found.add(known.folder, path, at, known.read_only)
        if names.context.once(f"isolated {names.call.step} {name}"):
            report.changed(at.path, f"every step of the task may see the workspace {name!r}", "", at.source)
    for name, workspace in names.workspaces.items():
        if workspace.folder is not None and name not in names.isolated:
            found.add(workspace.folder, workspace.path, names.call.spec, workspace.read_only)
    _volumes(names, made, templates, found)
    _implicit(made, found, names)
    return found.made()


def _volumes(names: TaskScope, made: list[ReadPart], templates: tuple[Located, ...], found: Mounts) -> None:
    report = names.context.report
    volumes = volumes_of((names.call.spec, *templates), names.context.library, report, names.lookup)
    for part in made:
        for at, lookup in part.mounts:
            name = str(understood(at.name(), lookup).fixed)
            path = understood(at.word("mountPath"), lookup)
            folder = volumes[name][0] if name in volumes else _workspace_volume(names, name)
            if folder is None:
                report.changed(at.path, f"there is no volume {name!r}: the folder is empty", "declare it", at.source)
                folder = Folder("task", legal(name))
            inner = understood(at.word("subPath"), lookup).value
            folder = Folder(
                folder.scope,
                folder.name,
                join_path(folder.sub_path, inner),
                folder.files,
                folder.claim,
                folder.read_only,
            )
            place = path.fixed if isinstance(path.fixed, str) else at.word("mountPath")
            found.add(folder, place, at, at.flag("readOnly"))


def _workspace_volume(names: TaskScope, volume: str) -> Folder | None:
    """`$(workspaces.x.volume)` names the volume of a workspace."""
    found = names.workspace(volume.removeprefix("ws-")) if volume.startswith("ws-") else None
    return None if found is None else found.folder


def _implicit(made: list[ReadPart], found: Mounts, names: TaskScope) -> None:
    """Paths below another mount, and files of results, are handled already."""
    text = "\n".join(_texts(one.part) for one in made)
    known = [*found.paths(), *(path for one in made for path in one.part.results.values())]
    known += [f"{RESULTS}/{result}" for result in names.results]
    for path in sorted(known, key=len, reverse=True):
        text = text.replace(path, "")
    for path, name in IMPLICIT.items():
        if path in text and not found.has(path):
            found.add(Folder("task", name), path, names.call.spec)


def _texts(part: Part) -> str:
    values = (part.command, part.args, part.source, part.env, part.workdir)
    plain = [to_text(value) for value in values if value and not any(True for _ in expressions(value))]
    return "\n".join((*plain, *(repr(value) for value in values)))


# -- the pod ----------------------------------------------------------------------------------------------------------


def _pod_template(names: TaskScope) -> dict[str, Any]:
    """All pod templates merged, with known variables replaced; the later one wins."""
    found: dict[str, Any] = {}
    for template in names.call.templates:
        found |= {str(name): value for name, value in template.data.items() if value is not None}
    return {name: _filled(names, value, template_at(names, name)) for name, value in found.items()}


def template_at(names: TaskScope, field: str) -> Located:
    return next((one.at(field) for one in reversed(names.call.templates) if one.given(field)), names.call.at)


def _filled(names: TaskScope, value: Any, at: Located) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(names, item, at) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(names, item, at) for item in value]
    if not isinstance(value, str) or "$(" not in value:
        return value
    known = understood(value, names.lookup)
    return known.fixed if isinstance(known.fixed, str) else value


def _placement(names: TaskScope, pod: Mapping[str, Any]) -> Placement | None:
    kept = dict(pod)
    for field in ("nodeSelector", "tolerations", "affinity"):
        if "$(" in repr(kept.get(field, "")):
            at = template_at(names, field)
            names.context.report.lost(
                at.path, f"{field} depends on a value that is known only when it runs", "write it out", at.source
            )
            del kept[field]
    return placement_of(kept)


def _resources(names: TaskScope) -> dict[str, int]:
    call = names.call
    template = asked(call.spec.map("stepTemplate"))
    steps = {
        at.word("name") or f"unnamed-{number}": overridden(template, asked(at))
        for number, at in enumerate(call.spec.maps("steps"))
    }
    sidecars = {
        at.word("name") or f"sidecar-{number}": asked(at) for number, at in enumerate(call.spec.maps("sidecars"))
    }
    whole: Asked = ({}, {})
    for settings in call.settings:
        for fields, known in (
            (("stepSpecs", "stepOverrides"), steps),
            (("sidecarSpecs", "sidecarOverrides"), sidecars),
        ):
            for field in fields:
                for at in settings.maps(field):
                    if at.word("name") in known:
                        known[at.word("name")] = overridden(known[at.word("name")], asked(at))
        own = asked(settings)
        whole = own if any(own) else whole
    return total(list(steps.values()), list(sidecars.values()), whole, names.context.library)


def _extra(names: TaskScope, made: list[ReadPart], pod: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that the model has no place for."""
    used = ("nodeSelector", "tolerations", "affinity", "volumes", "env")
    left = {name: frozen(value) for name, value in pod.items() if name not in used}
    metadata: dict[str, Any] = {}
    for settings in names.call.settings:
        account = settings.word("serviceAccountName") or settings.word("taskServiceAccountName")
        left |= {"serviceAccountName": account} if account else {}
        metadata = merged(metadata, settings.map("metadata").data)
    metadata = merged(metadata, names.call.spec.map("metadata").data) if names.call.embedded else metadata
    found: dict[str, Any] = {}
    if left:
        found["pod"] = left
        at = next((one for one in (*names.call.templates, *names.call.settings)[::-1] if one.data), names.call.at)
        if names.context.once(f"kept {at.path}"):
            names.context.report.kept(at.path, f"{', '.join(sorted(left))}: handed on as it is", at.source)
    containers = {one.part.name: one.leftovers for one in made if one.leftovers}
    if containers:
        found["containers"] = containers
    if metadata:
        found["metadata"] = {name: frozen(metadata[name]) for name in ("labels", "annotations") if name in metadata}
    why = next((one.unrunnable for one in made if one.unrunnable), "")
    if why:
        found["unrunnable"] = why
    return found
