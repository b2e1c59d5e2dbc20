"""The table of resources: what the Tasks of a machine do here. Called by machine.

It is a document of its own, beside the machine or in the same file:

    kind: StateMachineResources
    resources:
      resize: {function: "images:resize"}            # a Lambda function by its name or ARN
      sqs:sendMessage: {http: "https://queue.example/send"}
      batch:submitJob: {image: "worker:1", command: [work], resources: {cpu: 4}, queue: team-a}
      report: {command: [python, report.py]}
      s3:getObject: {folder: data}                   # what an ItemReader reads
      orders: {machine: {StartAt: …, States: …}}     # what startExecution starts; or the name of a document beside
      train: {step: {container: …, inputs: …}}       # a step as in a Penstock document: its inputs are the fields of the payload
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.errors import DocumentError, Problem, instead
from penstock.expressions.parse import Expr, quote
from penstock.expressions.types import ANY
from penstock.formats.asl.read.outline import heading
from penstock.formats.documents import Document, Library
from penstock.graph import codec, quantity
from penstock.graph.model import MISSING, Action, Container, Function, Http, Input, Output, Script, Step, Suspend

KIND: Final = "StateMachineResources"
CODE: Final = "penstock.backends.states"
_KINDS: Final = ("function", "command", "image", "http", "folder", "machine", "step")
_MORE: Final = {"image": ("command", "args"), "http": ("method", "headers")}
_COMMON: Final = ("resources", "queue")
_OF_STATE: Final = (
    "name",
    "needs",
    "trigger",
    "when",
    "each",
    "loop",
    "retry",
    "timeout",
    "timeout_by",
    "group",
    "tolerates",
    "workflow",
)
"""Fields of a step that a row may not have: the state of the Task says it, or nothing does."""
_FUNCTION: Final = re.compile(r":function:([^:]+)")
_MACHINE: Final = re.compile(r":stateMachine:([^:]+)")
_SERVICE: Final = re.compile(r"arn:[^:]*:states:::(?:aws-sdk:)?([\w-]+:\w+)")
STARTS: Final = ":states:startExecution"
TOKEN: Final = ".waitForTaskToken"
CALL: Final = Expr.of("params.walk.call")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWork:
    """What a Task is as a step."""

    action: Action
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    resources: Mapping[str, int] = field(default_factory=dict)
    queue: str | None = None
    unknown: str = ""
    """Why it cannot be run."""
    step: Step | None = None
    """A whole step, whose outputs by name are the answer."""


@dataclass(frozen=True, slots=True)
class StartedMachine:
    """What a startExecution starts: a definition, and where it is written."""

    name: str
    definition: Mapping[str, Any]
    document: Document
    path: str

    def heading(self) -> dict[str, Any]:
        """What a round has to know of it."""
        return {**heading(self.definition), "Name": self.name}


def answered(value: Any = MISSING, path: str | None = None) -> tuple[Output, ...]:
    """The one output of every step that works; a step that was skipped has none."""
    return (Output(name="answer", type=ANY, value=value, path=path, default=None),)


def function(name: str, *inputs: Input) -> TaskWork:
    """One of the functions of backends.states."""
    return TaskWork(action=Function(module=CODE, name=name), inputs=inputs, outputs=answered())


class Table:
    """All tables of a library."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.rows: dict[str, tuple[Document, Mapping[str, Any]]] = {}
        self.wrong: list[Any] = []
        self.used: set[str] = set()
        for document in library.of_kind(KIND):
            given = document.data.get("resources")
            for name, row in (given if isinstance(given, Mapping) else {}).items():
                path = f"resources.{name}"
                if isinstance(row, Mapping) and self._row(document, path, row):
                    self.rows[str(name)] = (document, row)
                elif not isinstance(row, Mapping):
                    fix = f"give one of {', '.join(_KINDS)}"
                    self.wrong.append(document.problem("P835", path, f"{name} is not a mapping", fix))

    def _row(self, document: Document, path: str, row: Mapping[str, Any]) -> bool:
        kinds = [kind for kind in _KINDS if kind in row]
        kind = "image" if "image" in kinds else kinds[0] if kinds else ""
        if not kind or (len(kinds) > 1 and set(kinds) != {"image", "command"}):
            said = "does nothing" if not kinds else f"does several things: {', '.join(kinds)}"
            fix = f"give one of {', '.join(_KINDS)}"
            self.wrong.append(document.problem("P835", path, f"the resource {said}", fix))
            return False
        known = (kind, *_MORE.get(kind, ()), *(() if kind == "step" else _COMMON))
        strange = [str(name) for name in row if name not in known]
        for name in strange:
            fix = instead(name, known)
            self.wrong.append(document.problem("P835", f"{path}.{name}", f"{kind} has no field {name}", fix))
        if kind == "function" and not re.fullmatch(r"[\w.]+:[\w.]+", str(row[kind])):
            message = f"{row[kind]!r} is not module:function"
            self.wrong.append(document.problem("P835", f"{path}.function", message, "write module:function"))
            return False
        if kind == "step" and not strange:
            try:
                _step(row["step"])
            except DocumentError as error:
                at = f"{path}.step"
                self.wrong += [document.problem("P835", at, one.message, one.fix) for one in error.problems]
                return False
        return not strange

    def work(self, state: Mapping[str, Any]) -> TaskWork:
        """What a Task does, or why it cannot be run here."""
        resource = str(state["Resource"])
        for name in _names(resource, state):
            if name in self.rows and "machine" not in self.rows[name][1]:
                self.used.add(name)
                return _made(self.rows[name][1])
        names = list(_names(resource, state))
        why = f"nothing is bound to the resource {names[0]!r}: give it in a document of the kind {KIND}"
        return TaskWork(action=Container(image="unresolved"), outputs=answered(), unknown=why)

    def machine(self, state: Mapping[str, Any]) -> StartedMachine | None:
        """What a startExecution starts, if it is given: in a table, or as a document of that name."""
        if STARTS not in str(state["Resource"]) or TOKEN in str(state["Resource"]):
            return None
        machines = {one.name: one for one in self.library.documents if isinstance(one.data.get("States"), Mapping)}
        for name in _names(str(state["Resource"]), state):
            document, row = self.rows.get(name, (None, {}))
            if document is not None and isinstance(row.get("machine"), Mapping):
                self.used.add(name)
                return StartedMachine(name, row["machine"], document, f"resources.{name}.machine")
            found = machines.get(str(row.get("machine", name)))
            if found is not None:
                self.used.add(name)
                return StartedMachine(found.name, found.data, found, "")
        return None

    def reader(self, resource: str) -> TaskWork:
        """What an ItemReader does."""
        for name in _names(resource, {}):
            row = self.rows.get(name, (None, {}))[1]
            if "folder" in row:
                self.used.add(name)
                parameters = Input(name="parameters", value=Expr.of("params.walk.read.parameters"))
                return function("read_file", Input(name="folder", value=str(row["folder"])), parameters)
        why = f"nothing is bound to the reader {resource!r}: give it a folder in a document of the kind {KIND}"
        return TaskWork(action=Container(image="unresolved"), outputs=answered(), unknown=why)


def _names(resource: str, state: Mapping[str, Any]) -> Iterator[str]:
    """What a table may call it: the resource, the name of its function, the service and its action."""
    yield resource
    fields = state.get("Parameters", state.get("Arguments"))
    called = fields.get("FunctionName") if isinstance(fields, Mapping) else None
    started = fields.get("StateMachineArn") if isinstance(fields, Mapping) else None
    for text, pattern in ((started, _MACHINE), (called, _FUNCTION), (resource, _FUNCTION)):
        if isinstance(text, str):
            found = pattern.search(text)
            yield from ([text, found.group(1)] if found else [text])
    service = _SERVICE.match(resource)
    if service is not None:
        yield service.group(1)


def _step(given: Any) -> Step:
    """The step of a row, with the fields of the payload as its inputs. Raises DocumentError."""
    fields = dict(given) if isinstance(given, Mapping) else given
    if isinstance(fields, dict):
        wrong = [name for name in _OF_STATE if name in fields]
        if wrong:
            fix = "say it in the state of the Task"
            raise DocumentError([Problem("P835", f"the step of a resource has no field {wrong[0]}", fix)])
        inputs = fields.get("inputs", [])
        fields["name"] = "resource"
        if isinstance(inputs, list):
            fields["inputs"] = [{**one, "value": None} if isinstance(one, Mapping) else one for one in inputs]
    document = {"apiVersion": codec.VERSION, "kind": codec.KIND, "name": "resource", "steps": [fields]}
    step = codec.from_data(document).steps[0]
    if isinstance(step.action, Suspend):
        raise DocumentError(
            [Problem("P835", "the step of a resource does nothing", "use a Wait, or .waitForTaskToken")]
        )
    values = [replace(one, value=Expr.of(f"{CALL.text}[{quote(one.name)}]")) for one in step.inputs]
    return replace(step, inputs=tuple(values))


def _made(row: Mapping[str, Any]) -> TaskWork:
    if "step" in row:
        step = _step(row["step"])
        return TaskWork(action=step.action, inputs=step.inputs, outputs=step.outputs, step=step)
    asked = row.get("resources")
    resources = {str(name): quantity.parse(amount) for name, amount in (asked or {}).items()}
    queue = None if row.get("queue") is None else str(row["queue"])
    common: dict[str, Any] = {"resources": resources, "queue": queue}
    env = {"PENSTOCK_INPUT": Expr.of("inputs.payload")}
    payload = Input(name="payload", value=CALL)
    if "function" in row:
        target = Input(name="target", value=str(row["function"]))
        action: Action = Function(module=CODE, name="call")
        return TaskWork(action=action, inputs=(target, payload), outputs=answered(), **common)
    if "http" in row:
        headers = {"Content-Type": "application/json", **(row.get("headers") or {})}
        method = str(row.get("method", "POST"))
        action = Http(url=str(row["http"]), method=method, headers=headers, body=Expr.of("inputs.payload"))
        return TaskWork(action=action, inputs=(payload,), outputs=answered(Expr.of("response.body")), **common)
    words = tuple(map(str, row.get("command") or ()))
    if "image" in row:
        args = tuple(map(str, row.get("args") or ()))
        action = Container(image=str(row["image"]), command=words, args=args, env=env)
    else:
        action = Script(source=_shell(words), env=env)
    return TaskWork(action=action, inputs=(payload,), outputs=answered(path="/dev/stdout"), **common)


def _shell(words: tuple[str, ...]) -> str:
    """A command as a line of a shell; one word is a line already."""
    if len(words) == 1:
        return words[0]
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
