"""Leaf templates of Argo -> actions and outputs of steps. Called by graph for every call of one.

A template has one LeafSpec in each workflow that calls it: calls differ in the inputs of their steps. If a value must be known before the run (a
time limit that is an input), or the step's name is used, each call has its own LeafSpec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from penstock.errors import known_are, nearest
from penstock.expressions.evaluate import EvaluationError, resolve
from penstock.expressions.parse import Binary, Call, Const, Expr, Node, reference
from penstock.expressions.selector import compile_path, json_path
from penstock.expressions.types import STR, optional
from penstock.formats.argo.read.arguments import called_name
from penstock.formats.argo.read.builder import CallScope, listed
from penstock.formats.argo.read.globals import RUN
from penstock.formats.argo.read.pod import pod_of
from penstock.formats.argo.read.policy import cache_of, duration_of, locks_of, retry_of, timeout_of
from penstock.formats.argo.read.remote import http_of, resource_of
from penstock.formats.argo.read.steps import LeafSpec
from penstock.formats.argo.read.template import (
    ARTIFACT,
    ARTIFACTS,
    LOCATIONS,
    PARAMETERS,
    RESULT,
    WITH_FILES,
    TemplateSpec,
    text_of,
)
from penstock.formats.argo.read.values import TextScope, UnknownName, as_expr, as_text, constant_text
from penstock.formats.argo.scope import TYPES
from penstock.formats.documents import part
from penstock.formats.labels import PRIORITY, QUEUE
from penstock.formats.values import frozen
from penstock.graph.model import MISSING, Action, Container, Output, Suspend, Value

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


class LeafScope(TextScope):
    """The scope of a leaf template."""

    def __init__(self, around: CallScope, template: TemplateSpec, given: Callable[[], Mapping[str, Value]]) -> None:
        self.around = around
        self.template = template
        self.given = given
        """Gives the input parameters of the call."""
        self.notes = around.notes
        self.document = template.document
        self.own = template.inline
        """A value of this call was used: the LeafSpec cannot be shared."""

    def known(self) -> Mapping[str, Any]:
        self.own = True
        found = dict(self.around.known())
        inputs = {}
        for name, value in self.given().items():
            with suppress(EvaluationError):
                inputs[self.template.input_names[PARAMETERS, name]] = resolve(value, found)
        return {**found, "inputs": inputs}

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        rest = names[1:]
        match names[0]:
            case "inputs":
                return self.input(rest, typed)
            case "outputs":
                return self.output(rest)
            case "workflow":
                self.own |= rest[:1] in (("outputs",), ("status",))  # they depend on the caller
                return self.around.look(names, typed=typed)
            case "pod" if rest == ("name",):
                self.own = True
                self.notes.changed(self.document, self.template.path, "pod.name is the name of the run and of the step")
                return Binary("+", RUN, Const(f"-{self.step}"))
            case "steps" | "tasks" | "node" if rest == ("name",):
                self.own = True
                return called_name(names, self.around, self.template, typed)
            case "retries" if not rest and self.retried:
                return Call("string", (reference("attempt", "number"),))
            case "lastRetry" if len(rest) == 1 and rest[0] in _NOT_FIRST and self.retried:
                message = "of an earlier try only its number is known here; the rest reads as before the first retry"
                self.notes.changed(self.document, self.template.path, message)
                return Const(_NOT_FIRST[rest[0]])
            case "item" | "steps" | "tasks":
                if self.template.inline:
                    return self.around.look(names, typed=typed)
                raise UnknownName(
                    f"{'.'.join(names)[:80]} cannot be read inside the template {self.template.name!r}",
                    "pass it as an argument, and read inputs.parameters",
                )
            case _:
                return None

    @property
    def step(self) -> str:
        return self.around.site.step if self.around.site is not None else self.template.name

    @property
    def retried(self) -> bool:
        """Argo gives a template its attempt number only if it has a retryStrategy."""
        spec = self.around.builder.context.root.spec
        return self.template.body.get("retryStrategy") is not None or spec.get("retryStrategy") is not None

    def input(self, rest: tuple[str, ...], typed: bool) -> Node | None:
        template = self.template
        kind, name = (rest[0], ".".join(rest[1:])) if rest else ("", "")
        if kind == PARAMETERS and not name:
            return listed({one: reference("inputs", template.input_names[kind, one]) for one in template.inputs[kind]})
        if kind == ARTIFACTS and name.endswith(".path") and name[:-5] in template.inputs[kind]:
            return Const(text_of(template.inputs[kind][name[:-5]].get("path")) or "")
        own = template.input_names.get((kind, name))
        if own is not None and kind == PARAMETERS:
            return reference("inputs", own)
        if template.inline:
            return self.around.look(("inputs", *rest), typed=typed)
        known = template.inputs.get(kind) or template.inputs[PARAMETERS]
        fix = nearest(name, known).strip() or f"declare it under inputs.{kind or PARAMETERS}"
        raise UnknownName(f"the template {template.name!r} has no input inputs.{'.'.join(rest)[:80]}", fix)

    def output(self, rest: tuple[str, ...]) -> Node:
        """The path of an output. Other variables of its own outputs exist only in Argo's metrics, and stay as text."""
        if len(rest) >= 3 and rest[-1] == "path" and rest[0] in (PARAMETERS, ARTIFACTS):
            name, known = ".".join(rest[1:-1]), self.template.outputs[rest[0]]
            if name not in known:
                fix = nearest(name, known).strip() or known_are(known)
                raise UnknownName(f"the template {self.template.name!r} has no output {'.'.join(rest)[:80]!r}", fix)
            holder = part(known[name], "valueFrom") if rest[0] == PARAMETERS else known[name]
            return Const(text_of(holder.get("path")) or "")
        return Const(f"{{{{outputs.{'.'.join(rest)}}}}}")


class _DefaultScope(TextScope):
    """The scope of a leaf template with inputs at their defaults."""

    def __init__(self, around: LeafScope) -> None:
        self.around = around
        self.notes = around.notes
        self.document = around.document

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        return self.around.look(names, typed=typed)

    def known(self) -> Mapping[str, Any]:
        template = self.around.template
        given = {}
        for name, one in template.inputs[PARAMETERS].items():
            text = text_of(one.get("value")) or text_of(one.get("default"))
            if text is not None and "{{" not in text:
                given[template.input_names[PARAMETERS, name]] = text
        return {"inputs": given}


# -- leaf specs -------------------------------------------------------------------------------------------------------


def leaf_spec(template: TemplateSpec, around: CallScope, given: Callable[[], Mapping[str, Value]]) -> LeafSpec:
    """The LeafSpec of one call; shared with earlier calls if nothing differs."""
    leaf_specs = around.builder.context.leaf_specs
    key = (template.qualified, id(around.builder), around.exit)
    if key not in leaf_specs:
        scope = LeafScope(around, template, given)
        found = _LeafReader(scope).leaf_spec()
        if scope.own:
            return found
        leaf_specs[key] = found
    known: LeafSpec = leaf_specs[key]
    return known


class _LeafReader:
    def __init__(self, scope: LeafScope) -> None:
        self.scope = scope
        self.template = scope.template
        self.body = scope.template.body
        self.builder = scope.around.builder
        self.notes = scope.notes
        self.extra: dict[str, Any] = {}
        self.fields: dict[str, Any] = {}

    def leaf_spec(self) -> LeafSpec:
        action = self.action()
        self.policies()
        self.leftovers()
        outputs, spare = self.outputs()
        if self.extra:
            self.fields["extra"] = self.extra
        return LeafSpec(action, outputs, self.result(), spare, self.fields)

    def action(self) -> Action:
        template = self.template
        match template.kind:
            case "resource":
                return resource_of(part(self.body, "resource"), self.scope, f"{template.path}.resource", self.extra)
            case "http":
                found, self.fields["timeout"] = http_of(
                    part(self.body, "http"), self.scope, f"{template.path}.http", self.builder.context.library
                )
                return found
            case "suspend":
                path = f"{template.path}.suspend.duration"
                text = part(self.body, "suspend").get("duration")
                wait = duration_of(text, self.scope, path, "it waits until somebody resumes it")
                return Suspend(duration=None if wait is None else max(wait, 0.001))
            case "plugin" | "data" as kind:
                return self.stand_in(kind)
        pod = pod_of(template, self.scope, self.builder, self.scope.step)
        self.extra |= pod.extra
        self.fields |= {"mounts": pod.mounts, "resources": pod.resources, "placement": pod.placement}
        if template.kind == "containerSet" and part(self.body, "containerSet").get("retryStrategy") is not None:
            path = f"{template.path}.containerSet.retryStrategy"
            message = "one container of a set is not tried again by itself"
            self.notes.lost(
                template.document, path, message, "Give the template a retryStrategy: then all of it is tried again."
            )
        return pod.action

    def stand_in(self, kind: str) -> Container:
        """A step that can be planned and dry-run but not run here."""
        self.extra["argo"] = {kind: frozen(self.body[kind])}
        if kind == "plugin":
            self.fields["exempt"] = True  # it has no pod of its own: an agent serves it
            named = str(next(iter(part(self.body, "plugin")), "plugin"))
            absent = self.template.qualified.startswith("absent:")
            why = named if absent else f"the plugin {named[:60]!r} is executed by Argo's agent"
            named = self.template.name if absent else named[:60]
        else:
            named, why = "data", "a data template lists files in Argo's artifact store"
        self.extra["unrunnable"] = why
        message = f"{why}; here it can be planned and walked over, not run"
        self.notes.lost(
            self.template.document, f"{self.template.path}.{kind}", message, "Write it as a container or a script."
        )
        return Container(image=f"argo/{named or kind}")

    # -- the rest of the template

    def policies(self) -> None:
        context, scope, path = self.builder.context, self.scope, self.template.path
        given, at = self.body.get("retryStrategy"), f"{path}.retryStrategy"
        if given is None:
            given, at = context.root.spec.get("retryStrategy"), f"{context.root.path}.retryStrategy"
        self.fields["retry"] = retry_of(given, scope, at)
        limit = timeout_of(self.body, scope, path)
        if limit is not None:
            self.fields["timeout"] = limit
        locks = locks_of(self.body.get("synchronization"), scope, f"{path}.synchronization", context.library)
        self.fields |= {"locks": locks, "cache": cache_of(self.body.get("memoize"), scope, f"{path}.memoize")}
        labels = {**part(context.root.spec, "podMetadata", "labels"), **part(self.body, "metadata", "labels")}
        for name, label in (("queue", QUEUE), ("priority", PRIORITY)):
            text = text_of(labels.get(label))
            known = constant_text(text, scope, f"{path}.metadata.labels") if text else None
            if known:
                self.fields[name] = known

    def leftovers(self) -> None:
        """Fields that the model has no place for."""
        found = dict(self.extra.get("argo") or {})
        for name, value in self.body.items():
            if (
                name in TYPES
                or value is None
                or (name in _HANDLED and (self.template.kind in _PODS or name not in _POD_FIELDS))
            ):
                continue
            found[str(name)] = frozen(value)
            kind, message, near = _SAID.get(str(name), ("kept", "handed on as it is", ""))
            path = f"{self.template.path}.{name}"
            if kind == "lost" and value is not False:
                self.notes.lost(self.template.document, path, message, near)
            elif kind == "changed":
                self.notes.changed(self.template.document, path, message, near)
            else:
                self.notes.kept(self.template.document, path, message)
        if found:
            self.extra["argo"] = found
        else:
            self.extra.pop("argo", None)

    # -- outputs

    def result(self) -> Output | None:
        if not self.template.has_result:
            return None
        name = self.template.output_names[RESULT]
        return (
            Output(name=name, type=STR, value=ANSWER)
            if self.template.kind == "http"
            else Output(name=name, type=STR, path=STDOUT)
        )

    def outputs(self) -> tuple[tuple[Output, ...], frozenset[str]]:
        template = self.template
        found = [self.parameter(name, one) for name, one in template.outputs[PARAMETERS].items()]
        spare: set[str] = set()
        for name, one in template.outputs[ARTIFACTS].items():
            here, own = template.scope("outputs", ARTIFACTS, name), template.output_names[ARTIFACTS, name]
            if template.kind not in WITH_FILES:
                self.notes.lost(template.document, here, "a template of this type leaves no files")
                continue
            if not text_of(one.get("path")):
                self.notes.wrong(
                    template.document, here, "P835", "the artifact has no path", "say where it is written: path: /tmp/x"
                )
            path = self.path(one.get("path"), f"{here}.path")
            where = next((str(scope) for scope in one if scope in LOCATIONS), "")
            if where:
                self.notes.changed(template.document, f"{here}.{where}", "the file is kept by this machine's own store")
            if one.get("optional") is True:
                spare.add(own)
                found.append(Output(name=own, type=optional(ARTIFACT), path=path, default=None))
            else:
                found.append(Output(name=own, type=ARTIFACT, path=path))
        return tuple(found), frozenset(spare)

    def path(self, given: Any, path: str) -> str | None:
        text = text_of(given)
        known = constant_text(text, self.scope, path) if text else None
        if text and not known:
            known = constant_text(text, _DefaultScope(self.scope), path)
            message = (
                f"where it is written is only known when it runs; it is looked for at {known[:80]!r}" if known else ""
            )
            if known:
                self.notes.changed(self.template.document, path, message)
            else:
                self.notes.lost(self.template.document, path, "where it is written is only known when it runs")
        return known or None

    def parameter(self, name: str, one: Mapping[str, Any]) -> Output:
        template = self.template
        own, here = template.output_names[PARAMETERS, name], template.scope("outputs", PARAMETERS, name)
        source = part(one, "valueFrom")
        default, fixed = (self.literal(text, here) for text in (source.get("default"), one.get("value")))
        stands_in: Any = MISSING if default is None else default
        if template.kind == "resource":
            return Output(name=own, type=STR, value=self.of_object(source, here), default=stands_in)
        if template.kind == "suspend" or source.get("supplied") is not None:
            return Output(name=own, type=STR, default=stands_in)
        if template.kind == "http":
            self.notes.changed(template.document, here, "an http step gives the answer's body")
            return Output(name=own, type=STR, value=ANSWER, default=stands_in)
        path = self.path(source.get("path"), f"{here}.valueFrom.path")
        if path is None and template.kind not in ("plugin", "data"):
            self.notes.lost(
                template.document, here, "where its value comes from is not known here", "Give it valueFrom.path."
            )
            stands_in = stands_in if fixed is None else fixed
        return Output(name=own, type=STR, path=path, default=stands_in)

    def literal(self, given: Any, path: str) -> str | None:
        text = text_of(given)
        known = constant_text(text, self.scope, path) if text else text
        if text and known is None:
            self.notes.lost(
                self.template.document, path, "what stands in for it is only known when it runs; nothing does"
            )
        return known

    def of_object(self, source: Mapping[str, Any], path: str) -> Value:
        for name in ("jsonPath", "jqFilter"):
            text = text_of(source.get(name))
            known = constant_text(text, self.scope, f"{path}.valueFrom.{name}") if text else None
            if not known:
                continue
            node = compile_path(known) or (json_path(known) if name == "jsonPath" else None)
            if node is not None:
                return as_expr(as_text(node), self.scope, path)
            message = "only paths are understood of jq; it is empty here"
            self.notes.lost(self.template.document, f"{path}.valueFrom.{name}", message, "Use jsonPath.")
        return ""


ANSWER: Final = Expr.tree(Call("text", (reference("response", "body"),)))
