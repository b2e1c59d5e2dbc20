"""The workflow as plain frozen data. Built by author and formats, read by every package above. It has no behaviour.

A workflow is a list of steps. A step has an action, inputs, outputs, dependencies, loops, resources and a queue. Values that are
not known when the workflow is written are expressions (see expressions.parse) over these roots:

    params.NAME                  the workflow's parameters
    steps.NAME.outputs.OUTPUT    an output of another step; an ordered list if that step has a for-each
    steps.NAME.outcome           how it ended (in `trigger`, `when` and exit handlers)
    steps.NAME.error             what it failed with: {name, message}; {} if it has not failed, or has a for-each
    item.NAME                    the loop variables of this step's own for-each
    inputs.NAME, outputs.NAME    the step's own inputs and outputs, inside its action and its while loop
    object, response             the object of a resource step; the response to an http step
    attempt                      the failed attempt, in a retry condition; inside an action, `attempt.number` failures so far
    workflow.outcome             how the workflow ended, in exit handlers
    run.id, run.created          the run, and when it began

Lists inside the model are tuples. Maps are dicts that must not be changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Final

from penstock.errors import Source
from penstock.expressions.parse import Expr, references
from penstock.expressions.template import Template
from penstock.expressions.types import ANY, Type
from penstock.graph.callback import Callback
from penstock.graph.payload_paths import PayloadIdentity

Value = Any
"""JSON data whose leaves may also be Expr or Template."""


class Missing:
    """No default was given. This differs from a default of null."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


class Outcome(StrEnum):
    """How a step ended. An evicted task has not ended: it is queued again."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """It ran and did not succeed: exit code, exception, timeout."""
    ERRORED = "errored"
    """It could not be run: no image, no machine, a lost worker."""
    SKIPPED = "skipped"
    """Its `when` was false, or its loop had no items."""
    OMITTED = "omitted"
    """A dependency ended in an outcome that the step does not accept."""
    CANCELLED = "cancelled"


NORMAL: Final = frozenset({Outcome.SUCCEEDED, Outcome.SKIPPED})
"""The outcomes that a plain dependency accepts. A skipped step does not block its dependents."""
ANY_OUTCOME: Final = frozenset(Outcome)


class Unit(StrEnum):
    """How a workflow is cut into reservations."""

    WORKFLOW = "workflow"
    STAGE = "stage"
    TASK = "task"
    REUSE = "reuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a workflow. Without a default a run must give it a value."""

    name: str
    type: Type = ANY
    default: Value = MISSING
    choices: tuple[Value, ...] = ()
    doc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A named value that a step receives. With a `path`, it is written there as a file before the step starts.

    `default` is used if the value reads an output of a step that was skipped."""

    name: str
    value: Value
    type: Type = ANY
    path: str | None = None
    default: Value = MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A named value that a step or workflow produces.

    Of a container or script: read from `path`, by default the file $PENSTOCK_OUTPUTS/NAME; `/dev/stdout` is what it
    printed. Of a function: what it returned. Of a resource, http step or workflow: `value`, an expression. Of a suspend
    step: given when it is resumed. `default` is used if the step was skipped; with a for-each it is the whole list."""

    name: str
    type: Type = ANY
    path: str | None = None
    value: Value = MISSING
    default: Value = MISSING


# -- what a step does -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A command in an image."""

    kind: ClassVar[str] = "container"
    image: Value
    command: tuple[Value, ...] = ()
    args: tuple[Value, ...] = ()
    env: Mapping[str, Value] = field(default_factory=dict)
    workdir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A text that is passed to an interpreter. Without an image it runs where the engine runs."""

    kind: ClassVar[str] = "script"
    source: Value
    command: tuple[Value, ...] = ("sh",)
    image: Value = None
    env: Mapping[str, Value] = field(default_factory=dict)
    workdir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A Python function, called with the step's inputs as keyword arguments."""

    kind: ClassVar[str] = "function"
    module: str
    name: str
    code: str = ""
    """Digest of the function's source and of all code of the author that it uses."""
    image: Value = None
    env: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A Kubernetes object that is created (or applied, patched, …) and then watched until a condition holds."""

    kind: ClassVar[str] = "resource"
    manifest: Value
    action: str = "create"
    success_condition: Expr | None = None
    failure_condition: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """Waits for a person, for `duration` seconds, or `until` a time such as 2026-11-19T08:00:00Z. If the time comes first, the
    outputs have their defaults.

    With `payloads`, a list of identities, it waits until the work on all of them has ended: its output is {id: {state, run, outputs}}. After
    `duration` seconds it fails with a TimeoutError."""

    kind: ClassVar[str] = "suspend"
    duration: float | None = None
    until: Value = None
    message: Value = ""
    payloads: Value = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """An HTTP request."""

    kind: ClassVar[str] = "http"
    url: Value
    method: str = "GET"
    headers: Mapping[str, Value] = field(default_factory=dict)
    body: Value = None
    success_condition: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One program of a pod. With `source`, `command` is the interpreter that runs it."""

    name: str
    image: Value = None
    command: tuple[Value, ...] = ()
    args: tuple[Value, ...] = ()
    source: Value = None
    env: Mapping[str, Value] = field(default_factory=dict)
    workdir: Value = None
    needs: tuple[str, ...] | None = None
    """Parts of the pod that must have succeeded. None: the part before it."""
    when: tuple[Mapping[str, Value], ...] = ()
    """All must hold, or the part is skipped: {input, operator: in | notin, values}. Evaluated when the part is due."""
    on_error: str = "stop"
    """`continue`: the pod does not fail if the part fails."""
    timeout: float | None = None
    sidecar: bool = False
    """Started first, stopped when the other parts have ended."""
    results: Mapping[str, str] = field(default_factory=dict)
    """Values for later parts: name -> the file that this part writes. They read it as `$(steps.PART.results.NAME)`."""


PART_ON_ERROR: Final = ("stop", "continue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """Several programs that share one machine and its files, one after another or as their `needs` say. It is one task: it is
    admitted, started and retried as a whole."""

    kind: ClassVar[str] = "pod"
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """Another workflow, by its name in the root's `definitions`. The step's inputs are its parameters."""

    kind: ClassVar[str] = "workflow"
    name: str


Action = Container | Script | Function | Resource | Suspend | Http | Pod | Nested
ACTIONS: Final[Mapping[str, type[Any]]] = {
    cls.kind: cls for cls in (Container, Script, Function, Resource, Suspend, Http, Pod, Nested)
}
RESOURCE_ACTIONS: Final = ("create", "apply", "patch", "replace", "delete", "get")


# -- when and how often -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edge:
    """Wait for `step`, and continue only if it ended in one of `outcomes`."""

    step: str
    outcomes: frozenset[Outcome] = NORMAL


@dataclass(frozen=True, slots=True, kw_only=True)
class EnoughTasks:
    """Once `when` holds, over their `outputs`, for more than `beyond` tasks of a for-each that have succeeded, nothing more of it starts, and what runs
    is stopped. The step has then succeeded, with the outputs of the tasks that had."""

    when: Expr
    beyond: Value = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEach:
    """One task for each combination. Variables of one axis advance together (zip), axes multiply (cross), and the items
    of a later axis may use the variables of an earlier one (nested)."""

    axes: tuple[Mapping[str, Value], ...]
    parallel: int | None = None
    """The most tasks that run at the same time."""
    gang: bool = False
    """All or nothing. Otherwise the tasks are independent and may be admitted a few at a time."""
    at_once: Expr | None = None
    """Like `parallel`, where only the run knows the number: the smaller of the two holds."""
    enough: EnoughTasks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class While:
    """Run again while `condition` holds, the outputs of one round feeding the inputs of the next by `carry`.

    `test="before"`: over `inputs`, before each round, so perhaps no round at all. `"after"`: over `outputs`, after each."""

    condition: Expr
    carry: Mapping[str, str] = field(default_factory=dict)
    max_iterations: int = 100
    test: str = "after"
    at_limit: str = "stop"
    """`stop`: continue with the last round's outputs. `fail`: the step has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Wait `initial` seconds, then `factor` times longer each time, never more than `longest`."""

    initial: float = 1.0
    factor: float = 2.0
    longest: float = 300.0
    jitter: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Retry at most `limit` times. Evictions do not count."""

    limit: int
    backoff: Backoff = Backoff()
    on: tuple[str, ...] = ("failed", "errored", "timeout")
    exit_codes: tuple[int, ...] = ()
    """Only these, if any are given."""
    exceptions: tuple[str, ...] = ()
    when: Expr | None = None
    """Over `attempt.exit_code`, `attempt.message`, `attempt.number`, `attempt.outcome`, `attempt.seconds`."""
    within: float | None = None
    """No new attempt starts so many seconds after the first attempt began."""


RETRY_ON: Final = ("failed", "errored", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A taint of machines that the step accepts, as in Kubernetes."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The machines that a step may run on. Affinity is the object of Kubernetes, passed through."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: Value = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """May an earlier result be reused? Changing `version` makes the step run again once.

    With a `key`, two steps with the same key count as the same, whatever they do: the author guarantees it."""

    enabled: bool = True
    version: str = ""
    ttl: float | None = None
    key: Value = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """At most `limit` holders of this name at the same time, over all runs of the store. One is a mutex."""

    name: Value
    limit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Once the action has ended, the step waits for an answer from outside: its outputs, or an error. Who has the token of the attempt
    gives it. What it does is given the token: `callback.token` and `callback.url`, and $PENSTOCK_CALLBACK_TOKEN and _URL."""

    within: float | None = None
    """Seconds from the end of the action. Then it fails with a TimeoutError."""
    heartbeat: float | None = None
    """Seconds between two signs of life. Without one it fails with a TimeoutError."""
    within_by: Expr | None = None
    """Like `within`, where only the run knows it; the smaller of the two holds, and null is no limit."""
    heartbeat_by: Expr | None = None
    token_as: Expr | None = None
    """A text. The token takes its place wherever it stands in what the action is given: for who makes that before there is a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder that is mounted at `path`."""

    name: str
    path: str
    scope: str = "task"
    """`task`: its own, empty at first. `run`: shared by every task of the run that mounts this name. `given`: just `files`."""
    sub_path: Value = ""
    """Mount only this subfolder."""
    files: Mapping[str, Value] = field(default_factory=dict)
    """Files that it contains at first: relative path -> text."""
    read_only: bool = False


ANSWER_BY: Final = ("within_by", "heartbeat_by", "token_as")
"""Its fields that are expressions."""
MOUNT_SCOPES: Final = ("task", "run", "given")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node of a workflow: what it does, what it reads and waits for, what it asks for."""

    name: str
    action: Action
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    needs: tuple[Edge, ...] = ()
    """Declared by the author. A step also waits for every step whose outputs it uses."""
    trigger: Expr | None = None
    """Over `steps.X.outcome`, once every needed step has ended. False: the step is omitted."""
    when: Expr | None = None
    """False: the step, or this task of it, is skipped. Evaluated before the items of `each` if it does not read them."""
    each: ForEach | None = None
    loop: While | None = None
    retry: Retry | None = None
    timeout: float | None = None
    """Seconds from admission."""
    timeout_by: Expr | None = None
    """The same, where only the run knows it; the smaller of the two holds, and null is no limit. Not of a called workflow."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Thousandths of a unit, by resource, for one pod."""
    resources_by: Mapping[str, Value] = field(default_factory=dict)
    """Amounts that only the run knows, by resource: units, or text such as 4Gi. Evaluated once, when the step is ready, over
    parameters and outputs. `resources` says the most that each may be, which is what a plan counts with. Not of a called workflow."""
    replicas: int = 1
    """Pods of one task; they start together or not at all."""
    placement: Placement | None = None
    queue: str | None = None
    priority: str | int | None = None
    group: str | None = None
    """Steps of one group form one stage."""
    exempt: bool = False
    """It never queues: a hook, or a clean-up that frees what others wait for."""
    tolerates: frozenset[Outcome] = frozenset()
    """Outcomes of this step that do not fail the workflow."""
    locks: tuple[Lock, ...] = ()
    """Held while a task of it runs; all of them or none."""
    mounts: tuple[Mount, ...] = ()
    cache: Cache = Cache()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a foreign document that this model has no place for, as in Kubernetes: {pod: …, container: …, metadata: …}. Under
    the name of a format: what only that format knows. Writers hand it on; nothing else reads it."""
    answer: Answer | None = None
    doc: str = ""
    source: Source | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """All of these steps, or any one of them. A step that was skipped counts with all of them, but not alone."""

    steps: tuple[str, ...]
    of: str = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Another workflow, which is run when this one has ended; or when the links have that it comes `after`. A link makes one run.

    Expressions in it read `outputs.NAME` of what it comes after, `params.NAME` of this workflow, and `run.id`, `run.state`, `run.error` of the run
    that ended (of several: of the first that did not succeed, or the first)."""

    workflow: str
    """A definition, or this workflow itself."""
    name: str = ""
    """Its place in the chain; empty: the name of the workflow."""
    after: tuple[str, ...] = ()
    """Names of links. With several it is a join: it waits for all of them. Empty: this workflow itself."""
    on: tuple[str, ...] = ("succeeded",)
    """The ends after which it is run: succeeded, failed, cancelled, invalid."""
    when: Expr | None = None
    params: Mapping[str, Value] = field(default_factory=dict)
    """What is not named here is passed on by name: an output of what it comes after, or else a parameter of this workflow."""


LINK_ON: Final = ("succeeded", "failed", "cancelled", "invalid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """The graph as the author wrote it. The definitions that its steps call all belong to the root."""

    name: str
    params: tuple[Parameter, ...] = ()
    steps: tuple[Step, ...] = ()
    outputs: tuple[Output, ...] = ()
    on_exit: tuple[Step, ...] = ()
    """Exit handlers: they run when everything else has ended, whatever the outcome. They never queue."""
    queue: str | None = None
    priority: str | int | None = None
    unit: Unit | None = None
    """None: stage."""
    parallel: int | None = None
    """The most tasks at the same time. Of the root: all tasks of the run. Of a definition: its own tasks and calls."""
    timeout: float | None = None
    fail_fast: bool = False
    """After a failure nothing more starts. It has no effect if the workflow is judged by leaves: other branches continue there."""
    judged_by: str = "handled"
    """When has it failed? `handled`: a step failed, and no step that waits for it ran. `leaves`: a branch ended in failure:
    the last step of it that ran, as in Argo's DAGs."""
    enough: Enough | None = None
    """As soon as this much of it has succeeded, the workflow has: nothing more starts, and what runs is stopped."""
    locks: tuple[Lock, ...] = ()
    """Held while it runs."""
    payload: PayloadIdentity | None = None
    """Only of the root."""
    callbacks: tuple[Callback, ...] = ()
    """Requests that are sent when it has ended. Of the root alone."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Like `Step.extra`, for the document around the steps."""
    links: tuple[Link, ...] = ()
    """What is run when it has ended. Of a definition: when a run of it has, not a call."""
    definitions: tuple[Workflow, ...] = ()
    """The workflows that steps call and links run, by name. Only the root has any."""
    labels: Mapping[str, str] = field(default_factory=dict)
    doc: str = ""
    source: Source | None = field(default=None, compare=False)


JUDGED_BY: Final = ("handled", "leaves")
ENOUGH_OF: Final = ("all", "any")


# -- reading a workflow -----------------------------------------------------------------------------------------------


_PLAIN: Final = frozenset({int, float, bool, str, type(None)})


def expressions(value: Value) -> Iterator[Expr]:
    """Every expression inside a value."""
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, Template):
        for part in value.parts:
            if isinstance(part, Expr):
                yield part
    elif isinstance(value, (tuple, list)):
        if len(value) > 1024 and set(map(type, value)) <= _PLAIN:
            return  # a million loop items must not be walked one by one
        for item in value:
            if not isinstance(item, (str, int, float)):
                yield from expressions(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from expressions(item)


def action_values(action: Action) -> Iterator[tuple[str, Value]]:
    """(field, value) of everything in an action that may hold expressions."""
    match action:
        case Container(image=image, command=command, args=args, env=env):
            yield from (("image", image), ("command", command), ("args", args), ("env", env))
        case Script(source=source, command=command, image=image, env=env):
            yield from (("source", source), ("command", command), ("image", image), ("env", env))
        case Function(image=image, env=env):
            yield from (("image", image), ("env", env))
        case Resource(manifest=manifest):
            yield ("manifest", manifest)
        case Suspend(message=message, until=until, payloads=payloads):
            yield from (("message", message), ("until", until), ("payloads", payloads))
        case Http(url=url, headers=headers, body=body):
            yield from (("url", url), ("headers", headers), ("body", body))
        case Pod(parts=parts):
            yield ("parts", tuple(_part_values(part) for part in parts))
        case Nested():
            return


def _part_values(part: Part) -> dict[str, Value]:
    """The fields of a part that may hold expressions."""
    names = ("image", "command", "args", "source", "env", "workdir", "when")
    return {name: getattr(part, name) for name in names}


def with_values(action: Action, values: Mapping[str, Value]) -> Action:
    """The action with the values that `action_values` gives replaced."""
    if isinstance(action, Pod):
        parts = zip(action.parts, values["parts"], strict=True)
        return replace(action, parts=tuple(replace(part, **_frozen(given)) for part, given in parts))
    return replace(action, **values)


def _frozen(given: Mapping[str, Value]) -> dict[str, Value]:
    """A word of a command that evaluates to a list becomes that many words."""
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    for name in ("command", "args"):
        words = found.get(name, ())
        if any(isinstance(word, list) for word in words):
            found[name] = tuple(one for word in words for one in (word if isinstance(word, list) else (word,)))
    return found


def step_values(step: Step, inputs: bool = True) -> Iterator[tuple[str, Value]]:
    """(place, value) of everything in a step that may hold expressions; on request without its inputs."""
    for given in step.inputs if inputs else ():
        yield f"inputs.{given.name}", given.value
    for name, value in action_values(step.action):
        if value and type(value) is not str:
            yield f"{step.action.kind}.{name}", value
    if step.trigger is not None:
        yield "trigger", step.trigger
    if step.when is not None:
        yield "when", step.when
    if step.timeout_by is not None:
        yield "timeout_by", step.timeout_by
    if step.resources_by:
        yield "resources_by", step.resources_by
    if step.answer is not None:
        for name in ANSWER_BY:
            if (by := getattr(step.answer, name)) is not None:
                yield f"answer.{name}", by
    if step.each is not None:
        for axis in step.each.axes:
            for name, items in axis.items():
                yield f"each.{name}", items
        if step.each.at_once is not None:
            yield "each.at_once", step.each.at_once
        if step.each.enough is not None:
            yield "each.enough", (step.each.enough.when, step.each.enough.beyond)
    if step.loop is not None:
        yield "loop.condition", step.loop.condition
    if step.cache.key is not None:
        yield "cache.key", step.cache.key
    for number, lock in enumerate(step.locks):
        yield f"locks[{number}].name", lock.name
    for mount in step.mounts:
        yield f"mounts.{mount.name}", (mount.sub_path, mount.files)
    for output in step.outputs:
        if output.value is not MISSING:
            yield f"outputs.{output.name}", output.value


def _steps_in(value: Value) -> Iterator[tuple[str, bool]]:
    """(step, whether only its outcome is read) for every step that a value reads."""
    for expr in (value,) if type(value) is Expr else expressions(value):
        for path in references(expr.text):
            if path[0] == "steps" and len(path) > 1:
                yield path[1], path[2:3] in (("outcome",), ("error",))


def _reads_inputs_only(step: Step) -> bool:
    """A function without conditions, loops and the like: most steps of large workflows. Then there is nothing to look through."""
    action = step.action
    return (
        type(action) is Function
        and not action.env
        and (action.image is None or type(action.image) is str)
        and step.trigger is None
        and step.when is None
        and step.each is None
        and step.loop is None
        and step.timeout_by is None
        and not step.resources_by
        and step.answer is None
        and step.cache.key is None
        and not step.locks
        and not step.mounts
        and all(output.value is MISSING for output in step.outputs)
    )


def edges_of(step: Step) -> dict[str, frozenset[Outcome]]:
    """Every step that this one waits for, declared or inferred, with the outcomes that it accepts. A declaration wins.

    A step that reads an output needs a normal outcome. A step that only reads an outcome accepts every outcome, and so does a
    trigger, which evaluates outcomes itself."""
    found = {edge.step: edge.outcomes for edge in step.needs}
    asked: list[str] = []
    for given in step.inputs:
        if type(given.value) in _PLAIN:
            continue
        for name, only_outcome in _steps_in(given.value):
            if only_outcome:
                asked.append(name)
            else:
                found.setdefault(name, NORMAL)
    for place, value in () if _reads_inputs_only(step) else step_values(step, inputs=False):
        for name, only_outcome in _steps_in(value):
            if only_outcome or place == "trigger":
                asked.append(name)
            else:
                found.setdefault(name, NORMAL)
    for name in asked:
        found.setdefault(name, ANY_OUTCOME)
    return found
