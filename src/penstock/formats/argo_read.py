"""Argo Workflow, WorkflowTemplate, ClusterWorkflowTemplate and CronWorkflow -> a Workflow with Argo's meaning. Called by formats.foreign.

The way: the arguments become parameters; the entrypoint becomes the root workflow, every other steps or dag template that is
reached a definition (argo_in.graph); what is read of the whole workflow inside definitions is passed down to them; onExit and
the workflow's hooks become exit handlers. Nothing is dropped in silence: see the Report.

Its parts are in argo_in:

    sheet   a template, once      frame   variables, where they stand      leaf, pod, remote   what a step does
    graph   steps and hooks       order   what waits for what              policy              retries, locks, limits
    drafts  steps on their way    reading what all parts share             values              texts with tags
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from penstock.errors import DocumentError
from penstock.formats.argo_in.arguments import (
    MISSING_FILE,
    NOTHING,
    InputPlace,
    file_of,
    given_of,
    whole_given,
)
from penstock.formats.argo_in.drafts import Draft, Mould, Site
from penstock.formats.argo_in.frame import ExitPlace, Frame, SitePlace
from penstock.formats.argo_in.globals import Key
from penstock.formats.argo_in.graph import BAD, build, drafted, hook_condition, hooks_of
from penstock.formats.argo_in.leaf import PRIORITY, QUEUE
from penstock.formats.argo_in.policy import duration_of, locks_of, retry_of, timeout_of
from penstock.formats.argo_in.reading import Reading
from penstock.formats.argo_in.sheet import ARTIFACTS, PARAMETERS, Sheet, legal, text_of
from penstock.formats.argo_in.values import Unknown, as_text, made, node_of_value, output_expression, value_of
from penstock.formats.argo_scope import Unresolved
from penstock.formats.documents import Document, Library, part
from penstock.formats.kube import frozen
from penstock.formats.reading import Read
from penstock.graph.expr import Expr, reference
from penstock.graph.model import MISSING, Cache, Input, Lock, Nested, Output, Parameter, Step, Value, Workflow, edges_of
from penstock.graph.types import ANY, STR

DESCRIPTION: Final = "workflows.argoproj.io/description"
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
    "schedule", "schedules", "timezone", "concurrencyPolicy", "startingDeadlineSeconds", "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit", "suspend", "when", "stopStrategy", "workflowMetadata",
)  # fmt: skip


def read_argo(library: Library, root: Document) -> Read:
    """Raises UserError with every problem found."""
    reading = Reading(library, root)
    entry = _entry(reading)
    reading.read_arguments()
    workflow = _Assembly(reading, entry).workflow()
    return Read(workflow, reading.notes.report)


def _entry(reading: Reading) -> Sheet:
    root, notes = reading.root, reading.notes
    document, found = root.document, root.entry()
    if found is None:
        if root.unresolved is not None:
            reading.unresolved(root.unresolved, {}, document, f"{root.path}.workflowTemplateRef")
            notes.stop_if_wrong()
        raise DocumentError(
            document.problem(
                "P830", root.path, "there is nothing to run in it: it names no entrypoint",
                "run a Workflow that refers to it, or give it an entrypoint",
            )
        )  # fmt: skip
    if isinstance(found, Unresolved):
        if not root.scope.templates and root.unresolved is None:
            notes.wrong(
                document, f"{root.path}.templates", "P835", "there are no templates", "give a list of templates"
            )
        reading.unresolved(found, root.scope.templates, document, f"{root.path}.entrypoint")
    elif (sheet := reading.checked(reading.sheet(found, root.entrypoint))) is not None:
        return sheet
    notes.stop_if_wrong()
    raise AssertionError("a problem was noted")


class _Assembly:
    def __init__(self, reading: Reading, entry: Sheet) -> None:
        self.reading = reading
        self.notes = reading.notes
        self.root = reading.root
        self.document = reading.root.document
        self.main = reading.main = Frame(reading, entry, legal(self.document.name or "workflow"), root=True)

    def workflow(self) -> Workflow:
        reading, main = self.reading, self.main
        if main.sheet.composite:
            self.fill_inputs()
            build(main)
            main.outputs += outputs_of(main)
        else:
            self.alone()
        self.exits()
        while reading.waiting:
            frame = reading.waiting.popleft()
            build(frame)
            frame.outputs += outputs_of(frame)
        self.notes.stop_if_wrong()
        _pass_down(reading)
        outputs = tuple(self.root_outputs())
        _publish(reading)
        self.notes.stop_if_wrong()
        made = self.tried_again(self.assembled(outputs))
        self.notes.stop_if_wrong()
        return made

    def tried_again(self, made: Workflow) -> Workflow:
        """An entrypoint with a retryStrategy of its own is called, so that it can be called again."""
        sheet = self.main.sheet
        path = f"{sheet.path}.retryStrategy"
        given = sheet.body.get("retryStrategy") if sheet.composite else None
        retry = retry_of(given, SitePlace(self.main, None), path)
        if retry is None:
            return made
        if any(up in {step.name for step in made.steps} for one in made.on_exit for up in edges_of(one)):
            self.notes.lost(sheet.document, path, "an exit handler reads its steps, so it is not tried again")
            return made
        name = legal(sheet.name, {one.name for one in made.definitions})
        inner = Workflow(
            name=name, params=made.params, steps=made.steps, outputs=made.outputs, parallel=self.entry_limit,
            fail_fast=made.fail_fast, judged_by=made.judged_by, source=sheet.document.source(sheet.path),
        )  # fmt: skip
        call = Step(
            name=legal(sheet.name, set()), action=Nested(name=name), retry=retry, cache=Cache(enabled=False),
            inputs=tuple(Input(name=one.name, value=_read("params", one.name), type=one.type) for one in made.params),
            source=sheet.document.source(path),
        )  # fmt: skip
        outputs = tuple(replace(one, value=_read("steps", call.name, "outputs", one.name)) for one in made.outputs)
        whole = _count(self.root.spec.get("parallelism"), self.notes, self.document, f"{self.root.path}.parallelism")
        return replace(
            made, steps=(call,), outputs=outputs, parallel=whole, fail_fast=False, judged_by="handled",
            definitions=(*made.definitions, inner),
        )  # fmt: skip

    # -- the entrypoint

    def fill_inputs(self) -> None:
        """The inputs of a composite entrypoint are the arguments of the workflow, by name."""
        main, reading = self.main, self.reading
        place = SitePlace(main, None)
        given = whole_given(main, place, main.sheet)
        inputs = InputPlace(main.sheet, given, place)
        for name in main.sheet.inputs[PARAMETERS]:
            value = inputs.value(name)
            if value is MISSING:
                reading.add_parameter(name, main.sheet.place("inputs", PARAMETERS, name))
                value = Expr.tree(reference("params", reading.own_name(name)))
            main.inputs[name] = node_of_value(value)
        for name, one in main.sheet.inputs[ARTIFACTS].items():
            here = main.sheet.place("inputs", ARTIFACTS, name)
            file = given.files.get(name)
            if file is None:
                file = file_of(one, inputs, main.sheet.document, here)
            if file is None and one.get("optional") is not True:
                said = f"the entrypoint needs the artifact {name[:60]!r}, and the workflow's arguments do not give it"
                self.notes.wrong(
                    main.sheet.document, here, "P832", said, f"add it to {self.root.path}.arguments.artifacts"
                )
            main.artifacts[name] = MISSING_FILE if file is None or file is NOTHING else node_of_value(file)

    def alone(self) -> None:
        """An entrypoint that does something itself: one step, named after it."""
        main, sheet = self.main, self.main.sheet
        site = Site(sheet.name, legal(sheet.name), {}, sheet.path, sheet, None, 0)
        main.sites[site.name] = site
        main.taken.add(site.step)
        place = SitePlace(main, site)
        given = whole_given(main, place, sheet)
        for name in sheet.inputs[PARAMETERS]:
            if InputPlace(sheet, given, place).value(name) is MISSING:
                self.reading.add_parameter(name, sheet.place("inputs", PARAMETERS, name))
                given.values[name] = Expr.tree(reference("params", self.reading.own_name(name)))
        draft = drafted(main, site, place, given, {})
        main.drafts.append(draft)
        assert isinstance(draft.made, Mould)
        for one in draft.made.outputs:
            if one.name not in draft.made.spare:
                value = Expr.tree(reference("steps", site.step, "outputs", one.name))
                main.outputs.append(Output(name=one.name, type=one.type, value=value))

    # -- exit handlers

    def exits(self) -> None:
        main = self.main
        for name, call, path in hooks_of(self.root.spec, self.root.path):
            callee = self.reading.callee(main.sheet, call, path, name, f"@{name}", self.document)
            if callee is None:
                continue
            own = legal("onExit" if name == "exit" else f"hooks-{name}", main.taken)
            main.taken.add(own)
            site = Site(own, own, call, path, callee, None, 0)
            place = ExitPlace(main, site)
            place.document = self.document
            fields: dict[str, Any] = {} if name == "exit" else {"exempt": True, "tolerates": BAD}
            when = hook_condition(call, place, path, name == "exit")
            if when is not None:
                fields["when"] = when
            given = (
                whole_given(main, place, callee)
                if path.endswith(".onExit")
                else given_of(call.get("arguments"), place, f"{path}.arguments")
            )
            main.exits.append(drafted(main, site, place, given, fields))

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
            params=tuple(self.reading.params.values()),
            steps=tuple(map(self.limited, (draft.step() for draft in main.drafts))),
            outputs=outputs,
            on_exit=tuple(draft.step() for draft in main.exits),
            queue=queue or None,
            priority=priority,
            parallel=self.parallel(),
            timeout=self.timeout(),
            locks=self.locks(),
            extra=self.extra(),
            definitions=tuple(_definition(frame) for frame in self.reading.frames.values()),
            labels=labels,
            doc=(text_of(annotations.get(DESCRIPTION)) or "").strip(),
            source=self.document.source("kind"),
            **_judged(main),
        )

    def root_outputs(self) -> Iterator[Output]:
        """Those of the entrypoint, and whatever is published under a global name."""
        yield from self.main.outputs
        taken = {output.name for output in self.main.outputs}
        for key in sorted(self.reading.published_by(self.main.sheet)):
            name = legal(key[2], taken, variable=True)
            place = ExitPlace(self.main, None)
            node = self.main.published(key, place)
            if node is not None:
                taken.add(name)
                yield Output(name=name, type=ANY, value=made(node, place, self.root.path), default=None)

    def parallel(self) -> int | None:
        """Of the whole run, at any depth. The entrypoint's own limit counts its children, which is the same if it calls nothing."""
        whole = _count(self.root.spec.get("parallelism"), self.notes, self.document, f"{self.root.path}.parallelism")
        own = self.entry_limit
        if own is not None and self.reading.frames:
            if len(self.main.drafts) > 1:
                said = "it limits each loop by itself, not all that runs in this template together"
                self.notes.changed(self.main.sheet.document, f"{self.main.sheet.path}.parallelism", said)
            return whole
        return min((one for one in (whole, own) if one is not None), default=None)

    @cached_property
    def entry_limit(self) -> int | None:
        sheet = self.main.sheet
        given = sheet.body.get("parallelism") if sheet.composite else None
        return _count(given, self.notes, sheet.document, f"{sheet.path}.parallelism")

    def limited(self, step: Step) -> Step:
        """A loop of the entrypoint, with its limit, where that cannot be the limit of the run."""
        limit = self.entry_limit if self.reading.frames else None
        if step.each is None or limit is None:
            return step
        return replace(step, each=replace(step.each, parallel=min(limit, step.each.parallel or limit)))

    def timeout(self) -> float | None:
        place = SitePlace(self.main, None)
        path = f"{self.root.path}.activeDeadlineSeconds"
        found = [duration_of(self.root.spec.get("activeDeadlineSeconds"), place, path, "there is no limit")]
        sheet = self.main.sheet
        if sheet.composite:
            found.append(timeout_of(sheet.body, place, sheet.path))
            if sheet.body.get("memoize") is not None:
                said = "the workflow as a whole is not remembered"
                self.notes.lost(sheet.document, f"{sheet.path}.memoize", said, "Call it from another template.")
        known = [one for one in found if one]
        return min(known, default=None)

    def locks(self) -> tuple[Lock, ...]:
        place = SitePlace(self.main, None)
        library, sheet = self.reading.library, self.main.sheet
        found = list(
            locks_of(self.root.spec.get("synchronization"), place, f"{self.root.path}.synchronization", library)
        )
        if sheet.composite:
            found += locks_of(sheet.body.get("synchronization"), place, f"{sheet.path}.synchronization", library)
        return tuple(dict.fromkeys(found))

    def extra(self) -> dict[str, Any]:
        """What is said of the workflow and not read here."""
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
                said = "it is not run by the clock here, but when it is started"
                self.notes.changed(self.document, f"spec.{name}", said)
        sheet = self.main.sheet
        if sheet.composite:
            rest = {
                name: frozen(sheet.body[name])
                for name in ("annotations", "metrics")
                if sheet.body.get(name) is not None
            }
            if rest:
                found["entrypoint"] = rest
        return {"argo": found} if found else {}

    def remark(self, name: str, path: str, value: Any) -> None:
        if name in _SAID and value is not False:
            self.notes.changed(self.document, path, f"handed on; {_SAID[name]}")
        else:
            self.notes.kept(self.document, path, "handed on as it is")


def _judged(frame: Frame) -> dict[str, Any]:
    """When has it failed, and does a failure stop it?"""
    body = frame.sheet.body
    if frame.sheet.kind == "dag":
        return {"fail_fast": part(body, "dag").get("failFast") is not False, "judged_by": "leaves"}
    return {"fail_fast": frame.sheet.composite and body.get("failFast") is True}


def _read(*path: str) -> Expr:
    return Expr.tree(reference(*path))


def _count(value: Any, notes: Any, document: Document, path: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10_000_000:
        notes.wrong(document, path, "P835", f"{str(value)[:40]!r} is no number of steps", "write 4")
        return None
    return value or None


def _definition(frame: Frame) -> Workflow:
    sheet = frame.sheet
    return Workflow(
        name=frame.name,
        params=tuple(_parameters(frame)),
        steps=tuple(draft.step() for draft in frame.drafts),
        outputs=(*frame.outputs, *(output for output in frame.exported.values() if output is not None)),
        parallel=_count(
            sheet.body.get("parallelism"), frame.reading.notes, sheet.document, f"{sheet.path}.parallelism"
        ),
        source=sheet.document.source(sheet.path),
        **_judged(frame),
    )


def _parameters(frame: Frame) -> Iterator[Parameter]:
    """Its inputs, and what it reads of the whole workflow."""
    sheet = frame.sheet
    for (kind, name), own in sheet.input_names.items():
        one = sheet.inputs[kind][name]
        if kind == ARTIFACTS:
            yield Parameter(name=own, type=ANY, default=None)
            continue
        text = text_of(one.get("value"))
        text = text_of(one.get("default")) if text is None else text
        yield Parameter(
            name=own, type=STR, default=MISSING if text is None or "{{" in text else text, doc=text_of(one.get("description")) or ""
        )  # fmt: skip
    for key in frame.used:
        yield Parameter(name=frame.reading.globals.name(key), type=_type(key))


def _type(key: Key) -> Any:
    return ANY if key[0] == "outputs" else STR


def outputs_of(frame: Frame) -> Iterator[Output]:
    """What a steps or dag template gives out."""
    sheet, notes = frame.sheet, frame.reading.notes
    place = SitePlace(frame, None)
    for name, one in sheet.outputs[PARAMETERS].items():
        here = sheet.place("outputs", PARAMETERS, name)
        value = _output_value(one, place, here)
        if value is None:
            notes.wrong(
                sheet.document,
                here,
                "P835",
                f"the output {name[:60]!r} has no value",
                "give it valueFrom.parameter or valueFrom.expression",
            )
            continue
        default = text_of(part(one, "valueFrom").get("default"))
        yield Output(
            name=sheet.output_names[PARAMETERS, name], type=STR, value=value, default=MISSING if default is None else default
        )  # fmt: skip
    for name, one in sheet.outputs[ARTIFACTS].items():
        here = sheet.place("outputs", ARTIFACTS, name)
        file = file_of(one, place, sheet.document, here)
        if file is None and one.get("optional") is not True:
            notes.wrong(sheet.document, here, "P835", "the artifact comes from nowhere", "say from which step: from")
        file = None if file is NOTHING else file
        absent: Any = None if one.get("optional") is True else MISSING
        yield Output(name=sheet.output_names[ARTIFACTS, name], type=ANY, value=file, default=absent)


def _output_value(one: Mapping[str, Any], place: SitePlace, path: str) -> Value:
    source = part(one, "valueFrom")
    text = text_of(source.get("parameter"))
    if text is not None:
        return value_of(text, place, f"{path}.valueFrom.parameter")
    text = text_of(source.get("expression"))
    if text is not None:
        node = output_expression(text, place, f"{path}.valueFrom.expression")
        return "" if node is None else made(as_text(node), place, f"{path}.valueFrom.expression")
    text = text_of(one.get("value"))
    if text is None:
        text = text_of(source.get("default"))
    return None if text is None else value_of(text, place, f"{path}.value")


# -- what belongs to the whole workflow, inside definitions -----------------------------------------------------------


def _pass_down(reading: Reading) -> None:
    """Whoever calls a definition passes on what it reads of the whole workflow."""
    callers: dict[int, list[tuple[SitePlace, Draft]]] = {}
    for place, draft, called in reading.callers:
        callers.setdefault(id(called), []).append((place, draft))
    rest = deque((frame, key) for frame in reading.frames.values() for key in frame.used)
    while rest:
        frame, key = rest.popleft()
        for place, draft in callers.get(id(frame), ()):
            around = place.frame
            before = len(around.used)
            try:
                value: Value = made(around.shared(key, place), place, draft.site.path)
            except Unknown as error:
                reading.notes.wrong(around.document, draft.site.path, "P832", str(error), error.fix)
                continue
            draft.inputs.append(Input(name=reading.globals.name(key), value=value, type=_type(key)))
            if len(around.used) > before:
                rest.append((around, key))


def _publish(reading: Reading) -> None:
    """Definitions give out what is published in them and read outside."""
    while open_ := [
        (frame, key) for frame in reading.frames.values() for key, output in frame.exported.items() if output is None
    ]:
        for frame, key in open_:
            place = SitePlace(frame, None)
            node = frame.published(key, place)
            own = reading.publishes(frame.sheet).get(key)
            value: Value = "" if node is None else made(node, place, frame.sheet.path)
            for output in frame.outputs if own is not None else ():
                value = output.value if output.name == own else value
            frame.exported[key] = Output(name=reading.globals.name(key), type=ANY, value=value, default=None)
