"""Argo templates that do something themselves -> what a step of the model does. Called by graph for every call of one.

A template is moulded once for each workflow it is called in: what differs from call to call are the step's inputs. Only where
something has to be known beforehand (a time limit that is an input) or the step's own name is used, each call has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from penstock.errors import nearest
from penstock.formats.argo_in.drafts import Mould
from penstock.formats.argo_in.frame import SitePlace, listed
from penstock.formats.argo_in.globals import RUN
from penstock.formats.argo_in.objects import compile_path, json_path
from penstock.formats.argo_in.pod import pod_of
from penstock.formats.argo_in.policy import cache_of, duration_of, locks_of, retry_of, timeout_of
from penstock.formats.argo_in.remote import http_of, resource_of
from penstock.formats.argo_in.sheet import (
    ARTIFACT,
    ARTIFACTS,
    LOCATIONS,
    PARAMETERS,
    RESULT,
    WITH_FILES,
    Sheet,
    text_of,
)
from penstock.formats.argo_in.values import Place, Unknown, as_text, constant_text, made
from penstock.formats.argo_scope import TYPES
from penstock.formats.documents import part
from penstock.formats.kube import frozen
from penstock.graph.evaluate import EvaluationError, resolve
from penstock.graph.expr import Binary, Call, Const, Expr, Node, reference
from penstock.graph.model import MISSING, Action, Container, Output, Suspend, Value
from penstock.graph.types import STR, optional

QUEUE: Final = "kueue.x-k8s.io/queue-name"
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
STDOUT: Final = "/dev/stdout"
_NOT_FIRST: Final[Mapping[str, str]] = {"exitCode": "0", "status": "", "duration": "0", "message": ""}
"""`lastRetry` before the first retry."""
_PODS: Final = ("container", "script", "containerSet")
_POD_FIELDS: Final = frozenset(
    "affinity automountServiceAccountToken hostAliases initContainers metadata nodeSelector podResources podSpecPatch"
    " priorityClassName resourceClaims schedulerName securityContext serviceAccountName sidecars tolerations volumes".split()
)
_HANDLED: Final = _POD_FIELDS | frozenset(
    "name inputs outputs retryStrategy timeout activeDeadlineSeconds synchronization memoize parallelism failFast".split()
)
_SAID: Final[Mapping[str, tuple[str, str, str]]] = {
    "daemon": (
        "lost",
        "here it is a step like any other: what follows waits for its end, so a server that never ends holds up the run",
        "Start the server beforehand, or make it a sidecar of the step that uses it.",
    ),
    "metrics": ("changed", "handed on; nothing is measured for Prometheus here", ""),
    "pendingTimeout": ("changed", "handed on; waiting in a queue is never timed here", ""),
    "archiveLocation": ("changed", "handed on; logs and files are kept by this machine's own store", ""),
}


class LeafPlace(Place):
    """A text inside a template that does something itself."""

    def __init__(self, around: SitePlace, sheet: Sheet, given: Callable[[], Mapping[str, Value]]) -> None:
        self.around = around
        self.sheet = sheet
        self.given = given
        """Tells its input parameters as the call gives them."""
        self.notes = around.notes
        self.document = sheet.document
        self.own = sheet.inline
        """Something of this very call was used: the mould fits no other."""

    def known(self) -> Mapping[str, Any]:
        self.own = True
        found = dict(self.around.known())
        inputs = {}
        for name, value in self.given().items():
            with suppress(EvaluationError):
                inputs[self.sheet.input_names[PARAMETERS, name]] = resolve(value, found)
        return {**found, "inputs": inputs}

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        rest = names[1:]
        match names[0]:
            case "inputs":
                return self.input(rest, typed)
            case "outputs":
                return self.output(rest)
            case "workflow":
                self.own |= rest[:1] == ("outputs",)  # what has been published depends on who asks
                return self.around.look(names, typed=typed)
            case "pod" if rest == ("name",):
                self.own = True
                self.notes.changed(self.document, self.sheet.path, "pod.name is the name of the run and of the step")
                return Binary("+", RUN, Const(f"-{self.step}"))
            case "steps" | "tasks" | "node" if rest == ("name",):
                self.own = True
                return self.around.look(names, typed=typed)
            case "retries" if not rest and self.retried:
                return Call("string", (reference("attempt", "number"),))
            case "lastRetry" if len(rest) == 1 and rest[0] in _NOT_FIRST and self.retried:
                said = "of an earlier try only its number is known here; the rest reads as before the first retry"
                self.notes.changed(self.document, self.sheet.path, said)
                return Const(_NOT_FIRST[rest[0]])
            case "item" | "steps" | "tasks":
                if self.sheet.inline:
                    return self.around.look(names, typed=typed)
                raise Unknown(
                    f"{'.'.join(names)[:80]} cannot be read inside the template {self.sheet.name!r}",
                    "pass it as an argument, and read inputs.parameters",
                )
            case _:
                return None

    @property
    def step(self) -> str:
        return self.around.site.step if self.around.site is not None else self.sheet.name

    @property
    def retried(self) -> bool:
        """Argo tells a template of its tries only if it may be tried again."""
        spec = self.around.frame.reading.root.spec
        return self.sheet.body.get("retryStrategy") is not None or spec.get("retryStrategy") is not None

    def input(self, rest: tuple[str, ...], typed: bool) -> Node | None:
        sheet = self.sheet
        kind, name = (rest[0], ".".join(rest[1:])) if rest else ("", "")
        if kind == PARAMETERS and not name:
            return listed({one: reference("inputs", sheet.input_names[kind, one]) for one in sheet.inputs[kind]})
        if kind == ARTIFACTS and name.endswith(".path") and name[:-5] in sheet.inputs[kind]:
            return Const(text_of(sheet.inputs[kind][name[:-5]].get("path")) or "")
        own = sheet.input_names.get((kind, name))
        if own is not None and kind == PARAMETERS:
            return reference("inputs", own)
        if sheet.inline:
            return self.around.look(("inputs", *rest), typed=typed)
        known = sheet.inputs.get(kind) or sheet.inputs[PARAMETERS]
        fix = nearest(name, known).strip() or f"declare it under inputs.{kind or PARAMETERS}"
        raise Unknown(f"the template {sheet.name!r} has no input inputs.{'.'.join(rest)[:80]}", fix)

    def output(self, rest: tuple[str, ...]) -> Node:
        """Where an output is written; anything else of its own outputs is only known to Argo's metrics, and stays as text."""
        if len(rest) >= 3 and rest[-1] == "path" and rest[0] in (PARAMETERS, ARTIFACTS):
            name, known = ".".join(rest[1:-1]), self.sheet.outputs[rest[0]]
            if name not in known:
                fix = nearest(name, known).strip() or f"known are {', '.join(known) or 'none'}"
                raise Unknown(f"the template {self.sheet.name!r} has no output {'.'.join(rest)[:80]!r}", fix)
            holder = part(known[name], "valueFrom") if rest[0] == PARAMETERS else known[name]
            return Const(text_of(holder.get("path")) or "")
        return Const(f"{{{{outputs.{'.'.join(rest)}}}}}")


class _DefaultPlace(Place):
    """The same with inputs at their defaults."""

    def __init__(self, around: LeafPlace) -> None:
        self.around = around
        self.notes = around.notes
        self.document = around.document

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        return self.around.look(names, typed=typed)

    def known(self) -> Mapping[str, Any]:
        sheet = self.around.sheet
        given = {}
        for name, one in sheet.inputs[PARAMETERS].items():
            text = text_of(one.get("value")) or text_of(one.get("default"))
            if text is not None and "{{" not in text:
                given[sheet.input_names[PARAMETERS, name]] = text
        return {"inputs": given}


# -- moulding ---------------------------------------------------------------------------------------------------------


def mould(sheet: Sheet, around: SitePlace, given: Callable[[], Mapping[str, Value]]) -> Mould:
    """For one call; taken from an earlier one where nothing differs."""
    moulds = around.frame.reading.moulds
    key = (sheet.qualified, id(around.frame), around.exit)
    if key not in moulds:
        place = LeafPlace(around, sheet, given)
        found = _Moulder(place).mould()
        if place.own:
            return found
        moulds[key] = found
    known: Mould = moulds[key]
    return known


class _Moulder:
    def __init__(self, place: LeafPlace) -> None:
        self.place = place
        self.sheet = place.sheet
        self.body = place.sheet.body
        self.frame = place.around.frame
        self.notes = place.notes
        self.extra: dict[str, Any] = {}
        self.fields: dict[str, Any] = {}

    def mould(self) -> Mould:
        action = self.action()
        self.policies()
        self.leftovers()
        outputs, spare = self.outputs()
        if self.extra:
            self.fields["extra"] = self.extra
        return Mould(action, outputs, self.result(), spare, self.fields)

    def action(self) -> Action:
        sheet = self.sheet
        match sheet.kind:
            case "resource":
                return resource_of(part(self.body, "resource"), self.place, f"{sheet.path}.resource", self.extra)
            case "http":
                found, self.fields["timeout"] = http_of(
                    part(self.body, "http"), self.place, f"{sheet.path}.http", self.frame.reading.library
                )
                return found
            case "suspend":
                path = f"{sheet.path}.suspend.duration"
                text = part(self.body, "suspend").get("duration")
                wait = duration_of(text, self.place, path, "it waits until somebody resumes it")
                return Suspend(duration=None if wait is None else max(wait, 0.001))
            case "plugin" | "data" as kind:
                return self.stand_in(kind)
        pod = pod_of(sheet, self.place, self.frame, self.place.step)
        self.extra |= pod.extra
        self.fields |= {"mounts": pod.mounts, "resources": pod.resources, "placement": pod.placement}
        if sheet.kind == "containerSet" and part(self.body, "containerSet").get("retryStrategy") is not None:
            path = f"{sheet.path}.containerSet.retryStrategy"
            said = "one container of a set is not tried again by itself"
            self.notes.lost(
                sheet.document, path, said, "Give the template a retryStrategy: then all of it is tried again."
            )
        return pod.action

    def stand_in(self, kind: str) -> Container:
        """A step that keeps its place in the graph, so that it can be planned and walked over, and that cannot be run here."""
        self.extra["argo"] = {kind: frozen(self.body[kind])}
        if kind == "plugin":
            self.fields["exempt"] = True  # no pod of its own: an agent serves it
            named = str(next(iter(part(self.body, "plugin")), "plugin"))
            absent = self.sheet.qualified.startswith("absent:")
            why = named if absent else f"the plugin {named[:60]!r} is executed by Argo's agent"
            named = self.sheet.name if absent else named[:60]
        else:
            named, why = "data", "a data template lists files in Argo's artifact store"
        self.extra["unrunnable"] = why
        said = f"{why}; here it can be planned and walked over, not run"
        self.notes.lost(self.sheet.document, f"{self.sheet.path}.{kind}", said, "Write it as a container or a script.")
        return Container(image=f"argo/{named or kind}")

    # -- the rest of the template

    def policies(self) -> None:
        reading, place, path = self.frame.reading, self.place, self.sheet.path
        given, at = self.body.get("retryStrategy"), f"{path}.retryStrategy"
        if given is None:
            given, at = reading.root.spec.get("retryStrategy"), f"{reading.root.path}.retryStrategy"
        self.fields["retry"] = retry_of(given, place, at)
        limit = timeout_of(self.body, place, path)
        if limit is not None:
            self.fields["timeout"] = limit
        locks = locks_of(self.body.get("synchronization"), place, f"{path}.synchronization", reading.library)
        self.fields |= {"locks": locks, "cache": cache_of(self.body.get("memoize"), place, f"{path}.memoize")}
        labels = {**part(reading.root.spec, "podMetadata", "labels"), **part(self.body, "metadata", "labels")}
        for name, label in (("queue", QUEUE), ("priority", PRIORITY)):
            text = text_of(labels.get(label))
            known = constant_text(text, place, f"{path}.metadata.labels") if text else None
            if known:
                self.fields[name] = known

    def leftovers(self) -> None:
        """What the model has no word for."""
        found = dict(self.extra.get("argo") or {})
        for name, value in self.body.items():
            if (
                name in TYPES
                or value is None
                or (name in _HANDLED and (self.sheet.kind in _PODS or name not in _POD_FIELDS))
            ):
                continue
            found[str(name)] = frozen(value)
            kind, said, near = _SAID.get(str(name), ("kept", "handed on as it is", ""))
            path = f"{self.sheet.path}.{name}"
            if kind == "lost" and value is not False:
                self.notes.lost(self.sheet.document, path, said, near)
            elif kind == "changed":
                self.notes.changed(self.sheet.document, path, said, near)
            else:
                self.notes.kept(self.sheet.document, path, said)
        if found:
            self.extra["argo"] = found
        else:
            self.extra.pop("argo", None)

    # -- outputs

    def result(self) -> Output | None:
        if not self.sheet.has_result:
            return None
        name = self.sheet.output_names[RESULT]
        return (
            Output(name=name, type=STR, value=ANSWER)
            if self.sheet.kind == "http"
            else Output(name=name, type=STR, path=STDOUT)
        )

    def outputs(self) -> tuple[tuple[Output, ...], frozenset[str]]:
        sheet = self.sheet
        found = [self.parameter(name, one) for name, one in sheet.outputs[PARAMETERS].items()]
        spare: set[str] = set()
        for name, one in sheet.outputs[ARTIFACTS].items():
            here, own = sheet.place("outputs", ARTIFACTS, name), sheet.output_names[ARTIFACTS, name]
            if sheet.kind not in WITH_FILES:
                self.notes.lost(sheet.document, here, "a template of this type leaves no files")
                continue
            if not text_of(one.get("path")):
                self.notes.wrong(
                    sheet.document, here, "P835", "the artifact has no path", "say where it is written: path: /tmp/x"
                )
            path = self.path(one.get("path"), f"{here}.path")
            where = next((str(place) for place in one if place in LOCATIONS), "")
            if where:
                self.notes.changed(sheet.document, f"{here}.{where}", "the file is kept by this machine's own store")
            if one.get("optional") is True:
                spare.add(own)
                found.append(Output(name=own, type=optional(ARTIFACT), path=path, default=None))
            else:
                found.append(Output(name=own, type=ARTIFACT, path=path))
        return tuple(found), frozenset(spare)

    def path(self, given: Any, path: str) -> str | None:
        text = text_of(given)
        known = constant_text(text, self.place, path) if text else None
        if text and not known:
            known = constant_text(text, _DefaultPlace(self.place), path)
            said = (
                f"where it is written is only known when it runs; it is looked for at {known[:80]!r}" if known else ""
            )
            if known:
                self.notes.changed(self.sheet.document, path, said)
            else:
                self.notes.lost(self.sheet.document, path, "where it is written is only known when it runs")
        return known or None

    def parameter(self, name: str, one: Mapping[str, Any]) -> Output:
        sheet = self.sheet
        own, here = sheet.output_names[PARAMETERS, name], sheet.place("outputs", PARAMETERS, name)
        source = part(one, "valueFrom")
        default, fixed = (self.literal(text, here) for text in (source.get("default"), one.get("value")))
        stands_in: Any = MISSING if default is None else default
        if sheet.kind == "resource":
            return Output(name=own, type=STR, value=self.of_object(source, here), default=stands_in)
        if sheet.kind == "suspend" or source.get("supplied") is not None:
            return Output(name=own, type=STR, default=stands_in)
        if sheet.kind == "http":
            self.notes.changed(sheet.document, here, "an http step gives the answer's body")
            return Output(name=own, type=STR, value=ANSWER, default=stands_in)
        path = self.path(source.get("path"), f"{here}.valueFrom.path")
        if path is None and sheet.kind not in ("plugin", "data"):
            self.notes.lost(
                sheet.document, here, "where its value comes from is not known here", "Give it valueFrom.path."
            )
            stands_in = stands_in if fixed is None else fixed
        return Output(name=own, type=STR, path=path, default=stands_in)

    def literal(self, given: Any, path: str) -> str | None:
        text = text_of(given)
        known = constant_text(text, self.place, path) if text else text
        if text and known is None:
            self.notes.lost(self.sheet.document, path, "what stands in for it is only known when it runs; nothing does")
        return known

    def of_object(self, source: Mapping[str, Any], path: str) -> Value:
        for name in ("jsonPath", "jqFilter"):
            text = text_of(source.get(name))
            known = constant_text(text, self.place, f"{path}.valueFrom.{name}") if text else None
            if not known:
                continue
            node = compile_path(known) or (json_path(known) if name == "jsonPath" else None)
            if node is not None:
                return made(as_text(node), self.place, path)
            said = "only paths are understood of jq; it is empty here"
            self.notes.lost(self.sheet.document, f"{path}.valueFrom.{name}", said, "Use jsonPath.")
        return ""


ANSWER: Final = Expr.tree(Call("text", (reference("response", "body"),)))
