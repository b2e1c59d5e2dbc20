"""What the variables inside a Task stand for: its parameters, results, workspaces and context. Called by tekton_task.

The parameters of a task are the inputs of its step. A spec that is written inside a run or pipeline also sees what stands around it
(propagation); such a parameter becomes an input when it is first read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import nearest
from penstock.formats.documents import Library
from penstock.formats.lang.tekton_vars import Var
from penstock.formats.report import Report
from penstock.formats.tekton_mounts import Folder, Workspace
from penstock.formats.tekton_scope import (
    OBJECT,
    At,
    Known,
    Lookup,
    declared_type,
    legal,
    path_expr,
    texts_in,
    value_at,
)
from penstock.graph import types
from penstock.graph.expr import references
from penstock.graph.model import MISSING, Input, expressions
from penstock.graph.types import ANY, INT, Type

_READ = ("PipelineRun", "TaskRun", "Pipeline", "Task", "StepAction")
_INDEX = re.compile(r"\[([0-9]{1,2})\]\)")
RESULTS = "/tekton/results"
STEPS = "/tekton/steps"


@dataclass(slots=True)
class Context:
    """What all readers of one document share."""

    library: Library
    report: Report
    namespace: str = "default"
    run: bool = True
    """A run is read, so that what its parameters are is settled; a Pipeline's or Task's are open."""
    kept: set[str] = field(default_factory=set)
    """What has been reported, so that it is said once."""
    _longest: int | None = None

    @property
    def longest(self) -> int:
        """Elements that an array must have for every element that the documents read to be there."""
        if self._longest is None:
            texts = (text for document in self.library.of_kind(*_READ) for text in texts_in(document.data))
            found = [int(number) for text in texts if "])" in text for number in _INDEX.findall(text)]
            self._longest = min(max(found, default=0) + 1, 100)
        return self._longest

    def sample(self, kind: Type, spec: At | None) -> Any:
        """Something of a type, with all that is read of it: what a rehearsal takes for a result."""
        if kind.name == "list":
            return ("",) * self.longest
        keys = spec.map("properties").data if spec is not None else {}
        return {str(key): "" for key in keys} if kind.name == "dict" else ""

    def once(self, key: str) -> bool:
        fresh = key not in self.kept
        self.kept.add(key)
        return fresh


@dataclass(slots=True, kw_only=True)
class Call:
    """A task as it is called: by a pipeline, or by a TaskRun."""

    at: At
    step: str
    """The name of the step that it becomes."""
    spec: At
    task: str
    """The name of the Task."""
    embedded: bool
    """The spec is written where it is called, and sees the parameters and workspaces around it."""
    given: Mapping[str, Known]
    outer: Mapping[str, Known] = field(default_factory=dict)
    folders: Mapping[str, Folder]
    """Workspaces of the task -> what they are bound to."""
    spare: Mapping[str, Folder] = field(default_factory=dict)
    """Workspaces around it, which an embedded spec may use by name."""
    names: Lookup = lambda var: None
    """Variables of the pipeline."""
    run_name: Known
    templates: tuple[At, ...] = ()
    """Pod templates; the last one's word counts."""
    settings: tuple[At, ...] = ()
    """Where computeResources, stepSpecs and sidecarSpecs of this run of the task may stand."""
    read: frozenset[str] = frozenset()
    """Results that somebody reads."""


class Names:
    """The scope of one task."""

    def __init__(self, context: Context, call: Call) -> None:
        self.context = context
        self.call = call
        self.inputs: dict[str, Input] = {}
        self.params: dict[str, Known] = {}
        self.results: dict[str, At] = {}
        self.printed = ""
        """The result that is what the task prints."""
        self.isolated: set[str] = set()
        self.workspaces: dict[str, Workspace] = {}
        self._declared: dict[str, At] = {}
        self._opening: set[str] = set()
        for spec in call.spec.maps("params"):
            self._declared[spec.name()] = spec
        for name in (*self._declared, *call.given):
            self.param(name)
        for result in call.spec.maps("results"):
            self.results[result.name()] = result
        for part in (*call.spec.maps("steps"), *call.spec.maps("sidecars")):
            self.isolated |= {usage.name() for usage in part.maps("workspaces")}
        self._workspaces()

    # -- parameters ---------------------------------------------------------------------------------------------------

    def param(self, name: str) -> Known | None:
        """A parameter as the texts of the task see it."""
        if name not in self.params:
            found = self._value(name)
            if found is None:
                return None
            self.params.setdefault(name, self._as_input(name, found))
        return self.params[name]

    def _value(self, name: str) -> Known | None:
        """What it is given: by the call, by what stands around an embedded spec, or by its default."""
        spec = self._declared.get(name)
        given = self.call.given.get(name)
        outer = self.call.outer.get(name) if self.call.embedded else None
        if given is None:
            given = outer
        elif outer is not None and given.type == OBJECT:
            given = with_default(given, outer.unfolded())  # keys that are not given are those around it
        default = self._default(name, spec)
        if given is not None:
            return with_default(given, default)
        if default is None and spec is not None:
            return self._without(name)
        return default

    def _default(self, name: str, spec: At | None) -> Known | None:
        """Defaults may read other parameters."""
        if spec is None or not spec.given("default"):
            return None
        if name in self._opening:
            raise spec.error("P833", f"the default of {name!r} leads back to itself", "write a value")
        self._opening.add(name)
        try:
            return value_at(spec.at("default"), self._from_default)
        finally:
            self._opening.discard(name)

    def _from_default(self, var: Var) -> Known | None:
        keys = _param_keys(var)
        if keys is None:
            return None
        found = self._value(keys[0])
        return None if found is None else found.picked(keys[1:], var)

    def _without(self, name: str) -> Known:
        raise self.call.at.error(
            "P832",
            f"the task {self.call.task!r} needs the parameter {name!r}",
            f"give it under params of {self.call.at.path or 'the run'}",
        )

    def _as_input(self, name: str, known: Known) -> Known:
        """What depends on the attempt cannot be worked out before it: it stays where it is read."""
        if any(path[0] == "attempt" for one in expressions(known.value) for path in references(one.text)):
            return known
        kind = declared_type(self._declared[name]) if name in self._declared else known.type
        kind = kind if types.fits(known.type, kind) else ANY
        own = legal(name, self.inputs, variable=True)
        self.inputs[own] = Input(name=own, value=known.value, type=kind)
        seen = known.type if kind == ANY else kind
        return Known(path_expr("inputs", own), seen, known.fixed)

    # -- workspaces ---------------------------------------------------------------------------------------------------

    def _workspaces(self) -> None:
        for spec in self.call.spec.maps("workspaces"):
            self._workspace(spec.name(), spec)
        for name in self.call.folders:
            self.workspace(name)

    def _workspace(self, name: str, spec: At | None) -> None:
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
        """One that is declared, bound, or to be had from around an embedded spec."""
        around = self.call.spare if self.call.embedded else {}
        if name not in self.workspaces and (name in self.call.folders or name in around):
            self._workspace(name, None)
        return self.workspaces.get(name)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def lookup(self, var: Var) -> Known | None:
        """Every variable of a task but those of one step. None: it is left as it stands."""
        keys = _param_keys(var)
        if keys is not None:
            found = self.param(keys[0])
            return self._or_tell(var, None if found is None else found.picked(keys[1:], var), (*self._known_params(),))
        match var.path:
            case ("results", *rest) if rest[-1:] == ["path"]:
                name = ".".join(rest[:-1])
                place = Known.plain(f"{RESULTS}/{name}") if name in self.results else None
                return self._or_tell(var, place, tuple(self.results))
            case ("workspaces", name, what):
                workspace = self.workspace(name)
                text = None if workspace is None else workspace.variable(what)
                return self._or_tell(var, None if text is None else Known.plain(text), tuple(self.workspaces))
            case ("context", *rest):
                return self._context(rest, var)
            case ("credentials", "path"):
                return Known.plain("/tekton/creds")
            case ("artifacts", "path"):
                return Known.plain("/tekton/artifacts/provenance.json")
            case ("tasks", *_):
                return self.call.names(var)
        return None

    def _context(self, rest: list[str], var: Var) -> Known | None:
        match rest:
            case ["taskRun", "name" | "uid"]:
                return self.call.run_name
            case ["taskRun", "namespace"]:
                return Known.plain(self.context.namespace)
            case ["task", "name"]:
                return Known.plain(self.call.task)
            case ["task", "retry-count"]:
                return Known(path_expr("attempt", "number"), INT)
        return self.call.names(var)

    def _known_params(self) -> set[str]:
        return {*self._declared, *self.call.given, *(self.call.outer if self.call.embedded else ())}

    def _or_tell(self, var: Var, found: Known | None, known: tuple[str, ...]) -> Known | None:
        if found is None and self.context.once(f"{self.call.step} {var.raw}"):
            self.context.report.changed(
                self.call.spec.path,
                f"{var.raw} stands for nothing here and is left as it is",
                nearest(var.path[1], known).strip(),
                self.call.spec.source,
            )
        return found


def _param_keys(var: Var) -> tuple[str, ...] | None:
    """The name of the parameter and what is taken of it, if it is one. v1beta1 also says inputs.params."""
    if var.path[0] == "params" and len(var.path) > 1:
        return var.path[1:]
    return var.path[2:] if var.path[:2] == ("inputs", "params") and len(var.path) > 2 else None


def with_default(given: Known, default: Known | None) -> Known:
    """Keys of an object that are not given are those of its default."""
    if default is None or not isinstance(default.value, dict):
        return given
    below: dict[str, Any] = default.value
    fixed: Any = MISSING
    if isinstance(given.fixed, dict) and default.is_fixed:
        fixed = {**default.fixed, **given.fixed}
    if isinstance(given.value, dict):
        return Known({**below, **given.value}, OBJECT, fixed)
    if given.type.name == "str":
        return default
    own = given.unfolded()
    return Known({**below, **own.value}, OBJECT, fixed) if isinstance(own.value, dict) else given
