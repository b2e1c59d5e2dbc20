"""Argo Workflow, WorkflowTemplate, ClusterWorkflowTemplate and CronWorkflow -> a Workflow with Argo's semantics. Called by argo.format.

Arguments become parameters. The entrypoint becomes the root workflow, every other reachable steps or dag template a definition. Global values
that definitions read are passed down to them. onExit and the workflow's hooks become exit handlers. Nothing is dropped silently: see the
Report.

    template  a template            builder  variables and their scopes    leaf, pod, remote  actions of steps
    graph     steps and hooks       order    dependencies                  policy             retries, locks, limits
    steps     builders of Steps     context  what all parts share          values             texts with tags
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from penstock.errors import DocumentError
from penstock.expressions.parse import Expr, Node, reference
from penstock.expressions.types import ANY, STR
from penstock.formats.argo.labels import DESCRIPTION
from penstock.formats.argo.read.arguments import (
    MISSING_FILE,
    NOTHING,
    InputScope,
    file_of,
    given_of,
    whole_given,
)
from penstock.formats.argo.read.builder import CallScope, DefinitionBuilder, ExitScope
from penstock.formats.argo.read.context import ArgoReadContext
from penstock.formats.argo.read.globals import Key
from penstock.formats.argo.read.graph import BAD, build, drafted, give_names, hook_condition, hooks_of
from penstock.formats.argo.read.policy import duration_of, locks_of, retry_of, timeout_of
from penstock.formats.argo.read.steps import CallSite, LeafSpec, StepBuilder
from penstock.formats.argo.read.template import ARTIFACTS, PARAMETERS, TemplateSpec, legal, text_of
from penstock.formats.argo.read.values import UnknownName, as_expr, as_text, node_of_value, output_expression, value_of
from penstock.formats.argo.scope import Unresolved
from penstock.formats.base import Read
from penstock.formats.documents import Document, Library, part
from penstock.formats.labels import PRIORITY, QUEUE
from penstock.formats.values import frozen
from penstock.graph.model import MISSING, Cache, Input, Lock, Nested, Output, Parameter, Step, Value, Workflow, edges_of

_HANDLED: Final = frozenset(
    "activeDeadlineSeconds affinity arguments automountServiceAccountToken dnsConfig dnsPolicy entrypoint hooks hostAliases hostNetwork"
    " imagePullSecrets nodeSelector onExit parallelism podMetadata podPriorityClassName podResources podSpecPatch priority"
    " resourceClaims retryStrategy schedulerName securityContext serviceAccountName synchronization templateDefaults templates"
    " tolerations volumeClaimTemplates volumes workflowTemplateRef".split()
)
_SAID: Final[Mapping[str, str]] = {
    "archiveLogs": "logs are kept by this machine's own store",
    "artifactGC": "files are kept by this machine's own store",
    "artifactRepositoryRef": "files are kept by this machine's own store",
    "executorPlugins": "plugins are not started here",
    "metrics": "nothing is measured for Prometheus here",
    "podDisruptionBudget": "there are no pods here to be protected",
    "podGC": "there are no pods here to be removed",
    "shutdown": "it is run from the beginning",
    "suspend": "it begins at once",
    "ttlStrategy": "what ran stays recorded until it is removed by hand",
    "volumeClaimGC": "folders of a run are kept with it",
}
_CRON: Final = (
    "schedule",
    "schedules",
    "timezone",
    "concurrencyPolicy",
    "startingDeadlineSeconds",
    "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit",
    "suspend",
    "when",
    "stopStrategy",
    "workflowMetadata",
)


def read_argo(library: Library, root: Document) -> Read:
    """Raises UserError with every problem found."""
    context = ArgoReadContext(library, root)
    entry = _entry(context)
    context.read_arguments()
    workflow = _Assembly(context, entry).workflow()
    return Read(workflow, context.notes.report)


def _entry(context: ArgoReadContext) -> TemplateSpec:
    root, notes = context.root, context.notes
    document, found = root.document, root.entry()
    if found is None:
        if root.unresolved is not None:
            context.unresolved(root.unresolved, {}, document, f"{root.path}.workflowTemplateRef")
            notes.stop_if_wrong()
        raise DocumentError(
            document.problem(
                "P830",
                root.path,
                "there is nothing to run in it: it names no entrypoint",
                "run a Workflow that refers to it, or give it an entrypoint",
            )
        )
    if isinstance(found, Unresolved):
        if not root.scope.templates and root.unresolved is None:
            notes.wrong(
                document, f"{root.path}.templates", "P835", "there are no templates", "give a list of templates"
            )
        context.unresolved(found, root.scope.templates, document, f"{root.path}.entrypoint")
    elif (template := context.checked(context.template(found, root.entrypoint))) is not None:
        return template
    notes.stop_if_wrong()
    raise AssertionError("a problem was noted")


class _Assembly:
    def __init__(self, context: ArgoReadContext, entry: TemplateSpec) -> None:
        self.context = context
        self.notes = context.notes
        self.root = context.root
        self.document = context.root.document
        self.main = context.main = DefinitionBuilder(context, entry, legal(self.document.name or "workflow"), root=True)

    def workflow(self) -> Workflow:
        context, main = self.context, self.main
        if main.template.composite:
            self.fill_inputs()
            build(main)
            main.outputs += outputs_of(main)
        else:
            self.alone()
        self.exits()
        while context.waiting:
            builder = context.waiting.popleft()
            build(builder)
            builder.outputs += outputs_of(builder)
        self.notes.stop_if_wrong()
        _pass_down(context)
        outputs = tuple(self.root_outputs())
        _publish(context)
        self.notes.stop_if_wrong()
        as_expr = self.tried_again(self.assembled(outputs))
        self.notes.stop_if_wrong()
        return as_expr

    def tried_again(self, as_expr: Workflow) -> Workflow:
        """An entrypoint with a retryStrategy becomes a definition, so that it can be called again."""
        template = self.main.template
        path = f"{template.path}.retryStrategy"
        given = template.body.get("retryStrategy") if template.composite else None
        retry = retry_of(given, CallScope(self.main, None), path)
        if retry is None:
            return as_expr
        if any(up in {step.name for step in as_expr.steps} for one in as_expr.on_exit for up in edges_of(one)):
            self.notes.lost(template.document, path, "an exit handler reads its steps, so it is not tried again")
            return as_expr
        name = legal(template.name, {one.name for one in as_expr.definitions})
        inner = Workflow(
            name=name,
            params=as_expr.params,
            steps=as_expr.steps,
            outputs=as_expr.outputs,
            parallel=self.entry_limit,
            fail_fast=as_expr.fail_fast,
            judged_by=as_expr.judged_by,
            source=template.document.source(template.path),
        )
        call = Step(
            name=legal(template.name, set()),
            action=Nested(name=name),
            retry=retry,
            cache=Cache(enabled=False),
            inputs=tuple(
                Input(name=one.name, value=_read("params", one.name), type=one.type) for one in as_expr.params
            ),
            source=template.document.source(path),
        )
        outputs = tuple(replace(one, value=_read("steps", call.name, "outputs", one.name)) for one in as_expr.outputs)
        whole = _count(self.root.spec.get("parallelism"), self.notes, self.document, f"{self.root.path}.parallelism")
        return replace(
            as_expr,
            steps=(call,),
            outputs=outputs,
            parallel=whole,
            fail_fast=False,
            judged_by="handled",
            definitions=(*as_expr.definitions, inner),
        )

    # -- the entrypoint

    def fill_inputs(self) -> None:
        """The inputs of a composite entrypoint are the arguments of the workflow, by name."""
        main, context = self.main, self.context
        scope = CallScope(main, None)
        given = whole_given(main, scope, main.template)
        inputs = InputScope(main.template, given, scope)
        for name in main.template.inputs[PARAMETERS]:
            value = inputs.value(name)
            if value is MISSING:
                context.add_parameter(name, main.template.scope("inputs", PARAMETERS, name))
                value = Expr.tree(reference("params", context.own_name(name)))
            main.inputs[name] = node_of_value(value)
        for name, one in main.template.inputs[ARTIFACTS].items():
            here = main.template.scope("inputs", ARTIFACTS, name)
            file = given.files.get(name)
            if file is None:
                file = file_of(one, inputs, main.template.document, here)
            if file is None and one.get("optional") is not True:
                message = (
                    f"the entrypoint needs the artifact {name[:60]!r}, and the workflow's arguments do not give it"
                )
                self.notes.wrong(
                    main.template.document, here, "P832", message, f"add it to {self.root.path}.arguments.artifacts"
                )
            main.artifacts[name] = MISSING_FILE if file is None or file is NOTHING else node_of_value(file)

    def alone(self) -> None:
        """An entrypoint that is a leaf: one step with its name."""
        main, template = self.main, self.main.template
        site = CallSite(template.name, legal(template.name), {}, template.path, template, None, 0)
        main.sites[site.name] = site
        main.taken.add(site.step)
        scope = CallScope(main, site)
        given = whole_given(main, scope, template)
        for name in template.inputs[PARAMETERS]:
            if InputScope(template, given, scope).value(name) is MISSING:
                self.context.add_parameter(name, template.scope("inputs", PARAMETERS, name))
                given.values[name] = Expr.tree(reference("params", self.context.own_name(name)))
        step_builder = drafted(main, site, scope, given, {})
        main.step_builders.append(step_builder)
        assert isinstance(step_builder.made, LeafSpec)
        for one in step_builder.made.outputs:
            if one.name not in step_builder.made.spare:
                value = Expr.tree(reference("steps", site.step, "outputs", one.name))
                main.outputs.append(Output(name=one.name, type=one.type, value=value))

    # -- exit handlers

    def exits(self) -> None:
        main = self.main
        for name, call, path in hooks_of(self.root.spec, self.root.path):
            callee = self.context.callee(main.template, call, path, name, f"@{name}", self.document)
            if callee is None:
                continue
            own = legal("onExit" if name == "exit" else f"hooks-{name}", main.taken)
            main.taken.add(own)
            site = CallSite(own, own, call, path, callee, None, 0)
            scope = ExitScope(main, site)
            scope.document = self.document
            fields: dict[str, Any] = {} if name == "exit" else {"exempt": True, "tolerates": BAD}
            when = hook_condition(call, scope, path, name == "exit")
            if when is not None:
                fields["when"] = when
            given = (
                whole_given(main, scope, callee)
                if path.endswith(".onExit")
                else given_of(call.get("arguments"), scope, f"{path}.arguments")
            )
            main.exits.append(drafted(main, site, scope, given, fields))

    # -- the whole

    def assembled(self, outputs: tuple[Output, ...]) -> Workflow:
        main, spec = self.main, self.root.spec
        labels = {
            str(name): text
            for name, value in part(self.document.metadata, "labels").items()
            if (text := text_of(value))
        }
        annotations = part(self.document.metadata, "annotations")
        queue = labels.get(QUEUE) or text_of(annotations.get(QUEUE))
        number = spec.get("priority")
        priority: Any = labels.get(PRIORITY) or (
            number if isinstance(number, int) and not isinstance(number, bool) else None
        )
        return Workflow(
            name=main.name,
            params=tuple(self.context.params.values()),
            steps=tuple(map(self.limited, (step_builder.step() for step_builder in main.step_builders))),
            outputs=outputs,
            on_exit=tuple(step_builder.step() for step_builder in main.exits),
            queue=queue or None,
            priority=priority,
            parallel=self.parallel(),
            timeout=self.timeout(),
            locks=self.locks(),
            extra=self.extra(),
            definitions=tuple(_definition(builder) for builder in self.context.builders.values()),
            labels=labels,
            doc=(text_of(annotations.get(DESCRIPTION)) or "").strip(),
            source=self.document.source("kind"),
            **_judged(main),
        )

    def root_outputs(self) -> Iterator[Output]:
        """Outputs of the entrypoint, and everything with a global name."""
        yield from self.main.outputs
        taken = {output.name for output in self.main.outputs}
        for key in sorted(self.context.published_by(self.main.template)):
            name = legal(key[2], taken, variable=True)
            scope = ExitScope(self.main, None)
            node = self.main.published(key, scope)
            if node is not None:
                taken.add(name)
                yield Output(name=name, type=ANY, value=as_expr(node, scope, self.root.path), default=None)

    def parallel(self) -> int | None:
        """The limit of the whole run. The entrypoint's own limit counts its children, which is the same if it calls no other template."""
        whole = _count(self.root.spec.get("parallelism"), self.notes, self.document, f"{self.root.path}.parallelism")
        own = self.entry_limit
        if own is not None and self.context.builders:
            if len(self.main.step_builders) > 1:
                message = "it limits each loop by itself, not all that runs in this template together"
                self.notes.changed(self.main.template.document, f"{self.main.template.path}.parallelism", message)
            return whole
        return min((one for one in (whole, own) if one is not None), default=None)

    @cached_property
    def entry_limit(self) -> int | None:
        template = self.main.template
        given = template.body.get("parallelism") if template.composite else None
        return _count(given, self.notes, template.document, f"{template.path}.parallelism")

    def limited(self, step: Step) -> Step:
        """A loop of the entrypoint with the entrypoint's limit, if that cannot be the limit of the run."""
        limit = self.entry_limit if self.context.builders else None
        if step.each is None or limit is None:
            return step
        return replace(step, each=replace(step.each, parallel=min(limit, step.each.parallel or limit)))

    def timeout(self) -> float | None:
        scope = CallScope(self.main, None)
        path = f"{self.root.path}.activeDeadlineSeconds"
        found = [duration_of(self.root.spec.get("activeDeadlineSeconds"), scope, path, "there is no limit")]
        template = self.main.template
        if template.composite:
            found.append(timeout_of(template.body, scope, template.path))
            if template.body.get("memoize") is not None:
                message = "the workflow as a whole is not remembered"
                self.notes.lost(
                    template.document, f"{template.path}.memoize", message, "Call it from another template."
                )
        known = [one for one in found if one]
        return min(known, default=None)

    def locks(self) -> tuple[Lock, ...]:
        scope = CallScope(self.main, None)
        library, template = self.context.library, self.main.template
        found = list(
            locks_of(self.root.spec.get("synchronization"), scope, f"{self.root.path}.synchronization", library)
        )
        if template.composite:
            found += locks_of(template.body.get("synchronization"), scope, f"{template.path}.synchronization", library)
        return tuple(dict.fromkeys(found))

    def extra(self) -> dict[str, Any]:
        """Reports fields of the workflow that are not read."""
        found: dict[str, Any] = {}
        for name, value in self.root.spec.items():
            if name in _HANDLED or value is None:
                continue
            found[str(name)] = frozen(value)
            self.remark(str(name), f"{self.root.path}.{name}", value)
        if self.document.kind == "CronWorkflow":
            given = {name: self.document.spec[name] for name in _CRON if self.document.spec.get(name) is not None}
            found["cron"] = frozen(given)
            for name in given:
                message = "it is not run by the clock here, but when it is started"
                self.notes.changed(self.document, f"spec.{name}", message)
        template = self.main.template
        if template.composite:
            rest = {
                name: frozen(template.body[name])
                for name in ("annotations", "metrics")
                if template.body.get(name) is not None
            }
            if rest:
                found["entrypoint"] = rest
        return {"argo": found} if found else {}

    def remark(self, name: str, path: str, value: Any) -> None:
        if name in _SAID and value is not False:
            self.notes.changed(self.document, path, f"handed on; {_SAID[name]}")
        else:
            self.notes.kept(self.document, path, "handed on as it is")


def _judged(builder: DefinitionBuilder) -> dict[str, Any]:
    """`judged_by` and `fail_fast`."""
    body = builder.template.body
    if builder.template.kind == "dag":
        return {"fail_fast": part(body, "dag").get("failFast") is not False, "judged_by": "leaves"}
    return {"fail_fast": builder.template.composite and body.get("failFast") is True}


def _read(*path: str) -> Expr:
    return Expr.tree(reference(*path))


def _count(value: Any, notes: Any, document: Document, path: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10_000_000:
        notes.wrong(document, path, "P835", f"{str(value)[:40]!r} is not a number of steps", "write 4")
        return None
    return value or None


def _definition(builder: DefinitionBuilder) -> Workflow:
    template = builder.template
    return Workflow(
        name=builder.name,
        params=tuple(_parameters(builder)),
        steps=tuple(step_builder.step() for step_builder in builder.step_builders),
        outputs=(*builder.outputs, *(output for output in builder.exported.values() if output is not None)),
        parallel=_count(
            template.body.get("parallelism"), builder.context.notes, template.document, f"{template.path}.parallelism"
        ),
        source=template.document.source(template.path),
        **_judged(builder),
    )


def _parameters(builder: DefinitionBuilder) -> Iterator[Parameter]:
    """Its inputs, and the global values that it reads."""
    template = builder.template
    for (kind, name), own in template.input_names.items():
        one = template.inputs[kind][name]
        if kind == ARTIFACTS:
            yield Parameter(name=own, type=ANY, default=None)
            continue
        text = text_of(one.get("value"))
        text = text_of(one.get("default")) if text is None else text
        yield Parameter(
            name=own,
            type=STR,
            default=MISSING if text is None or "{{" in text else text,
            doc=text_of(one.get("description")) or "",
        )
    for key in builder.used:
        yield Parameter(name=builder.context.globals.name(key), type=_type(key))


def _type(key: Key) -> Any:
    return ANY if key[0] == "outputs" else STR


def outputs_of(builder: DefinitionBuilder) -> Iterator[Output]:
    """The outputs of a steps or dag template."""
    template, notes = builder.template, builder.context.notes
    scope = CallScope(builder, None)
    for name, one in template.outputs[PARAMETERS].items():
        here = template.scope("outputs", PARAMETERS, name)
        value = _output_value(one, scope, here)
        if value is None:
            notes.wrong(
                template.document,
                here,
                "P835",
                f"the output {name[:60]!r} has no value",
                "give it valueFrom.parameter or valueFrom.expression",
            )
            continue
        default = text_of(part(one, "valueFrom").get("default"))
        yield Output(
            name=template.output_names[PARAMETERS, name],
            type=STR,
            value=value,
            default=MISSING if default is None else default,
        )
    for name, one in template.outputs[ARTIFACTS].items():
        here = template.scope("outputs", ARTIFACTS, name)
        file = file_of(one, scope, template.document, here)
        if file is None and one.get("optional") is not True:
            notes.wrong(template.document, here, "P835", "the artifact has no source", "say from which step: from")
        file = None if file is NOTHING else file
        absent: Any = None if one.get("optional") is True else MISSING
        yield Output(name=template.output_names[ARTIFACTS, name], type=ANY, value=file, default=absent)


def _output_value(one: Mapping[str, Any], scope: CallScope, path: str) -> Value:
    source = part(one, "valueFrom")
    text = text_of(source.get("parameter"))
    if text is not None:
        return value_of(text, scope, f"{path}.valueFrom.parameter")
    text = text_of(source.get("expression"))
    if text is not None:
        node = output_expression(text, scope, f"{path}.valueFrom.expression")
        return "" if node is None else as_expr(as_text(node), scope, f"{path}.valueFrom.expression")
    text = text_of(one.get("value"))
    if text is None:
        text = text_of(source.get("default"))
    return None if text is None else value_of(text, scope, f"{path}.value")


# -- what belongs to the whole workflow, inside definitions -----------------------------------------------------------


def _pass_down(context: ArgoReadContext) -> None:
    """Callers of a definition pass on the global values that it reads."""
    callers: dict[int, list[tuple[CallScope, StepBuilder]]] = {}
    for scope, step_builder, called in context.callers:
        callers.setdefault(id(called), []).append((scope, step_builder))
    rest = deque((builder, key) for builder in context.builders.values() for key in builder.used)
    while rest:
        builder, key = rest.popleft()
        for scope, step_builder in callers.get(id(builder), ()):
            around = scope.builder
            before = len(around.used)
            try:
                value: Value = as_expr(_passed(key, scope), scope, step_builder.site.path)
            except UnknownName as error:
                context.notes.wrong(around.document, step_builder.site.path, "P832", str(error), error.fix)
                continue
            step_builder.inputs.append(Input(name=context.globals.name(key), value=value, type=_type(key)))
            give_names(step_builder, scope)
            if len(around.used) > before:
                rest.append((around, key))


def _passed(key: Key, scope: CallScope) -> Node:
    if key[0] != "name":
        return scope.builder.shared(key, scope)
    found = scope.name(key[1])
    if found is None:
        raise UnknownName(
            f"{{{{{key[1]}.name}}}} has no value in this call, and Argo would wait for ever", "leave it out"
        )
    return found


def _publish(context: ArgoReadContext) -> None:
    """Definitions export the global values that they publish and others read."""
    while open_ := [
        (builder, key)
        for builder in context.builders.values()
        for key, output in builder.exported.items()
        if output is None
    ]:
        for builder, key in open_:
            scope = CallScope(builder, None)
            node = builder.published(key, scope)
            own = context.publishes(builder.template).get(key)
            value: Value = "" if node is None else as_expr(node, scope, builder.template.path)
            for output in builder.outputs if own is not None else ():
                value = output.value if output.name == own else value
            builder.exported[key] = Output(name=context.globals.name(key), type=ANY, value=value, default=None)
