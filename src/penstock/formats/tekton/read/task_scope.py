"""The variables inside a Task: its parameters, results, workspaces and context. Called by task and parts.

The parameters of a task are the inputs of its step. A spec that is embedded in a run or pipeline also sees the variables around it (propagation);
such a parameter becomes an input when it is first read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import nearest
from penstock.expressions import types
from penstock.expressions.parse import references
from penstock.expressions.types import ANY, INT, Type
from penstock.formats.documents import Library
from penstock.formats.report import Report
from penstock.formats.tekton.read.matrix import Matrix
from penstock.formats.tekton.read.mounts import Folder, Workspace
from penstock.formats.tekton.read.scope import (
    OBJECT,
    KnownText,
    Located,
    Lookup,
    declared_type,
    legal,
    path_expr,
    refilled,
    value_at,
)
from penstock.formats.tekton.variables import Var, split_vars, texts_in
from penstock.graph.model import MISSING, Input, expressions

_READ = ("PipelineRun", "TaskRun", "Pipeline", "Task", "StepAction")
_INDEX = re.compile(r"\[([0-9]{1,2})\]\)")
RESULTS = "/tekton/results"
STEPS = "/tekton/steps"


@dataclass(slots=True)
class TektonContext:
    """What all readers of one document share."""

    library: Library
    report: Report
    namespace: str = "default"
    run: bool = True
    """The document is a run, so its parameters have values; those of a Pipeline or Task are open."""
    kept: set[str] = field(default_factory=set)
    """Remarks that have been reported already."""
    _longest: int | None = None

    @property
    def longest(self) -> int:
        """The length that an array needs for all elements that the documents read."""
        if self._longest is None:
            texts = (text for document in self.library.of_kind(*_READ) for text in texts_in(document.data))
            found = [int(number) for text in texts if "])" in text for number in _INDEX.findall(text)]
            self._longest = min(max(found, default=0) + 1, 100)
        return self._longest

    def sample(self, kind: Type, spec: Located | None) -> Any:
        """An example value of a type, with everything that is read of it, for a dry run."""
        if kind.name == "list":
            return ("",) * self.longest
        keys = spec.map("properties").data if spec is not None else {}
        return {str(key): "" for key in keys} if kind.name == "dict" else ""

    def once(self, key: str) -> bool:
        fresh = key not in self.kept
        self.kept.add(key)
        return fresh


@dataclass(slots=True, kw_only=True)
class TaskCall:
    """A call of a task, by a pipeline or a TaskRun."""

    at: Located
    step: str
    """The name of its step."""
    spec: Located
    task: str
    """The name of the Task."""
    embedded: bool
    """The spec is embedded in the call, and sees the parameters and workspaces around it."""
    given: Mapping[str, KnownText]
    matrix: Matrix | None = None
    """Its parameters are among those that are given."""
    outer: Mapping[str, KnownText] = field(default_factory=dict)
    folders: Mapping[str, Folder]
    """Workspace of the task -> its folder."""
    spare: Mapping[str, Folder] = field(default_factory=dict)
    """Workspaces around it, which an embedded spec may use by name."""
    names: Lookup = lambda var: None
    """Variables of the pipeline."""
    run_name: KnownText
    templates: tuple[Located, ...] = ()
    """Pod templates; the last one wins."""
    settings: tuple[Located, ...] = ()
    """The places of computeResources, stepSpecs and sidecarSpecs for this call."""
    read: frozenset[str] = frozenset()
    """Results that are read."""


class TaskScope:
    """The scope of one task."""

    def __init__(self, context: TektonContext, call: TaskCall) -> None:
        self.context = context
        self.call = call
        self.inputs: dict[str, Input] = {}
        self.params: dict[str, KnownText] = {}
        self.results: dict[str, Located] = {}
        self.printed = ""
        """The result that is the printed output."""
        self.isolated: set[str] = set()
        self.workspaces: dict[str, Workspace] = {}
        self._declared: dict[str, Located] = {}
        for spec in call.spec.maps("params"):
            self._declared[spec.name()] = spec
        self._defaults = _defaults(self._declared)
        for result in call.spec.maps("results"):
            self.results[result.name()] = result
        for part in (*call.spec.maps("steps"), *call.spec.maps("sidecars")):
            self.isolated |= {usage.name() for usage in part.maps("workspaces")}
        self._workspaces()
        for name in (*self._declared, *call.given):
            self.param(name)

    # -- parameters ---------------------------------------------------------------------------------------------------

    def param(self, name: str) -> KnownText | None:
        """The value of a parameter in the texts of the task."""
        if name not in self.params:
            found = self._value(name)
            if found is None:
                return None
            self.params.setdefault(name, self._as_input(name, found))
        return self.params[name]

    def _value(self, name: str) -> KnownText | None:
        """Its value: from the call, from around an embedded spec, or its default."""
        if self.call.matrix is not None and name in self.call.matrix.given:
            return self.call.matrix.refill(name, self._later)
        spec = self._declared.get(name)
        given = self.call.given.get(name)
        outer = self.call.outer.get(name) if self.call.embedded else None
        if given is None:
            given = outer
        elif outer is not None and given.type == OBJECT:
            given = with_default(given, outer.unfolded())  # keys that are not given come from around it
        default = self._defaults.get(name)
        if given is not None:
            return refilled(with_default(given, default), self._later)
        if default is None and spec is not None:
            return self._unresolved(name, spec) if spec.given("default") else self._without(name)
        return None if default is None else refilled(default, self._later)

    def _later(self, var: Var) -> KnownText | None:
        """What Tekton replaces after the parameters. Unknown ones stay as text."""
        match var.path:
            case ("results", *rest) if rest[-1:] == ["path"] and ".".join(rest[:-1]) in self.results:
                return self.lookup(var)
            case ("workspaces", name, _) if self.workspace(name) is not None:
                return self.lookup(var)
            case ("context" | "credentials" | "artifacts", *_):
                return self.lookup(var)
        return None

    def _unresolved(self, name: str, spec: Located) -> KnownText:
        """A default that reads a parameter without a default is none: Tekton leaves the variable as it is."""
        if self.context.once(f"default {self.call.step} {name}"):
            self.context.report.changed(
                f"{spec.path}.default",
                f"it reads a parameter that has no default: $(params.{name}) is left as it is",
                "give that parameter a default",
                spec.source,
            )
        return KnownText.plain(f"$(params.{name})")

    def _without(self, name: str) -> KnownText:
        raise self.call.at.error(
            "P832",
            f"the task {self.call.task!r} needs the parameter {name!r}",
            f"give it under params of {self.call.at.path or 'the run'}",
        )

    def _as_input(self, name: str, known: KnownText) -> KnownText:
        """Values that depend on the attempt stay where they are read."""
        if any(path[0] == "attempt" for one in expressions(known.value) for path in references(one.text)):
            return known
        kind = declared_type(self._declared[name]) if name in self._declared else known.type
        kind = kind if types.fits(known.type, kind) else ANY
        own = legal(name, self.inputs, variable=True)
        self.inputs[own] = Input(name=own, value=known.value, type=kind)
        seen = known.type if kind == ANY else kind
        return KnownText(path_expr("inputs", own), seen, known.fixed)

    # -- workspaces ---------------------------------------------------------------------------------------------------

    def _workspaces(self) -> None:
        for spec in self.call.spec.maps("workspaces"):
            self._workspace(spec.name(), spec)
        for name in self.call.folders:
            self.workspace(name)

    def _workspace(self, name: str, spec: Located | None) -> None:
        folder = self.call.folders.get(name)
        if folder is None and self.call.embedded:
            folder = self.call.spare.get(name)
        optional = spec is not None and spec.flag("optional")
        at = spec or self.call.at
        if folder is None and not optional:
            self.context.report.changed(
                at.path,
                f"nothing is bound to the workspace {name!r}: a folder of its own stands in",
                "bind it in the run",
                at.source,
            )
            folder = Folder("task", legal(name))
        path = f"/workspace/{name}" if spec is None else spec.word("mountPath") or f"/workspace/{name}"
        if "$(" in path:
            found = value_at(at.at("mountPath"), self.lookup)
            path = found.fixed if isinstance(found.fixed, str) else path
        self.workspaces[name] = Workspace(name, path, folder, spec is not None and spec.flag("readOnly"))

    def workspace(self, name: str) -> Workspace | None:
        """A workspace that is declared, bound, or visible around an embedded spec."""
        around = self.call.spare if self.call.embedded else {}
        if name not in self.workspaces and (name in self.call.folders or name in around):
            self._workspace(name, None)
        return self.workspaces.get(name)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def lookup(self, var: Var) -> KnownText | None:
        """A variable of a task, except those of one step. None: it stays as text."""
        keys = _param_keys(var)
        if keys is not None:
            found = self.param(keys[0])
            return self._or_tell(var, None if found is None else found.picked(keys[1:], var), (*self._known_params(),))
        match var.path:
            case ("results", *rest) if rest[-1:] == ["path"]:
                name = ".".join(rest[:-1])
                place = KnownText.plain(f"{RESULTS}/{name}") if name in self.results else None
                return self._or_tell(var, place, tuple(self.results))
            case ("workspaces", name, what):
                workspace = self.workspace(name)
                text = None if workspace is None else workspace.variable(what)
                return self._or_tell(var, None if text is None else KnownText.plain(text), tuple(self.workspaces))
            case ("context", *rest):
                return self._context(rest, var)
            case ("credentials", "path"):
                return KnownText.plain("/tekton/creds")
            case ("artifacts", "path"):
                return KnownText.plain("/tekton/artifacts/provenance.json")
            case ("tasks", *_):
                return self.call.names(var)
        return None

    def _context(self, rest: list[str], var: Var) -> KnownText | None:
        match rest:
            case ["taskRun", "name" | "uid"]:
                return self.call.run_name
            case ["taskRun", "namespace"]:
                return KnownText.plain(self.context.namespace)
            case ["task", "name"]:
                # An embedded spec has no name of its own.
                return self.call.run_name if self.call.embedded else KnownText.plain(self.call.task)
            case ["task", "retry-count"]:
                return KnownText(path_expr("attempt", "number"), INT)
        return self.call.names(var)

    def _known_params(self) -> set[str]:
        return {*self._declared, *self.call.given, *(self.call.outer if self.call.embedded else ())}

    def _or_tell(self, var: Var, found: KnownText | None, known: tuple[str, ...]) -> KnownText | None:
        if found is None and self.context.once(f"{self.call.step} {var.raw}"):
            self.context.report.changed(
                self.call.spec.path,
                f"{var.raw} has no value here and is left as it is",
                nearest(var.path[1], known).strip(),
                self.call.spec.source,
            )
        return found


def _param_keys(var: Var) -> tuple[str, ...] | None:
    """The name of the parameter and the part that is read, if it is one. v1beta1 also has inputs.params."""
    if var.path[0] == "params" and len(var.path) > 1:
        return var.path[1:]
    return var.path[2:] if var.path[:2] == ("inputs", "params") and len(var.path) > 2 else None


def _defaults(declared: Mapping[str, Located]) -> dict[str, KnownText]:
    """The defaults of a Task. One that reads parameters sees their defaults, whatever is given; of several that it reads, Tekton fills in the
    last one only."""
    found: dict[str, KnownText] = {}
    reading: dict[str, str] = {}
    for name, spec in declared.items():
        data = spec.at("default").data
        if isinstance(data, str) and "$(params." in data:
            reading[name] = data
        elif data is not None:
            found[name] = value_at(spec.at("default"), lambda _: None)
    for name, text in reading.items():
        for var in split_vars(text):
            if isinstance(var, Var) and var.raw.startswith("$(params.") and var.path[1] in found:
                value = found[var.path[1]].picked(var.path[2:], var)
                if value is not None and isinstance(value.value, str):
                    found[name] = KnownText.plain(text.replace(var.raw, value.value))
    return found


def with_default(given: KnownText, default: KnownText | None) -> KnownText:
    """Keys of an object that are not given come from its default."""
    if default is None or not isinstance(default.value, dict):
        return given
    below: dict[str, Any] = default.value
    fixed: Any = MISSING
    if isinstance(given.fixed, dict) and default.is_fixed:
        fixed = {**default.fixed, **given.fixed}
    if isinstance(given.value, dict):
        return KnownText({**below, **given.value}, OBJECT, fixed)
    if given.type.name == "str":
        return default
    own = given.unfolded()
    return KnownText({**below, **own.value}, OBJECT, fixed) if isinstance(own.value, dict) else given
