"""A workflow compiled for running: what each step waits for, where its inputs come from, what its key is made of. Worked out once.
Called by RunState. Pure.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final

from penstock.expressions.evaluate import EvaluationError, NotKnown, evaluate, resolve, to_text
from penstock.expressions.parse import (
    Call,
    Choice,
    Expr,
    ListOf,
    MapOf,
    Node,
    path_of,
    reference,
    references,
    replace,
    show,
    simple_path,
)
from penstock.expressions.secret import Secret
from penstock.graph.codec import canonical, encode
from penstock.graph.links import Links
from penstock.graph.model import (
    MISSING,
    Action,
    Container,
    Function,
    Http,
    Lock,
    Mount,
    Nested,
    Outcome,
    Output,
    Pod,
    Resource,
    Script,
    Step,
    Suspend,
    Workflow,
    action_values,
    expressions,
    with_values,
)
from penstock.graph.rewrite import as_node, map_value
from penstock.graph.stored import Stored

FILES: Final = "/tmp/penstock/inputs"
"""Where a file is placed for a command that names no path for it."""
_CONST, _ITEM, _PARAM, _OUTPUT, _EXPR = range(5)
_SCALARS: Final = frozenset({int, float, bool, str, type(None)})
Fetch = Callable[[Stored], Any]


class Loaded(dict[str, Any]):
    """Outputs or inputs as an expression sees them: a value in the artifact store is fetched when an expression reads it."""

    __slots__ = ("fetch",)
    fetch: Fetch

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        kind = type(value)
        if kind is Stored:
            value = self[name] = self._open(value)
        elif kind is list and any(type(item) is Stored for item in value):
            value = self[name] = [self._open(item) if type(item) is Stored else item for item in value]
        return value

    def _open(self, stored: Stored) -> Any:
        if stored.kind != "json":
            what = "a Python object" if stored.kind == "pickle" else f"a {stored.kind}"
            raise EvaluationError(f"the value is {what}: an expression cannot look into it")
        return self.fetch(stored)

    def raw(self, name: str) -> Any:
        return super().__getitem__(name)


def holds_stored(values: Mapping[str, Any]) -> bool:
    """Is there a value among them that an expression can look into once it is fetched?"""
    return any(type(value) is Stored and value.kind == "json" for value in values.values())


def loaded(values: Mapping[str, Any], fetch: Fetch) -> Loaded:
    found = Loaded(values)
    found.fetch = fetch
    return found


class StepPlan:
    """One step of a workflow, compiled."""

    __slots__ = (
        "anew",
        "edges",
        "followers",
        "getters",
        "inner",
        "keyed",
        "kind",
        "laid",
        "named_outputs",
        "number",
        "optional",
        "prefix",
        "private",
        "shape",
        "slot",
        "static",
        "step",
        "tolerates",
        "widened",
    )

    def __init__(self, step: Step, number: int, prefixes: dict[Any, bytes]) -> None:
        self.step = step
        self.number = number
        self.kind = step.action.kind
        self.edges: tuple[tuple[int, frozenset[Outcome]], ...] = ()
        self.followers: list[int] = []
        self.inner: Blueprint | None = None
        self.named_outputs: tuple[Output, ...] = step.outputs
        self.getters = [(given.name, *_getter(given.value)) for given in step.inputs]
        optional = {given.name: given.default for given in step.inputs if given.default is not MISSING}
        self.optional: dict[str, Any] | None = optional or None
        """Inputs that may have no value -> their default; MISSING: the called workflow has the default."""
        self.tolerates = step.tolerates
        self.slot = 0 if isinstance(step.action, Suspend) else 1
        """How many places a task takes under a limit of tasks at a time: a suspended task takes none."""
        plain = isinstance(step.action, Function) and not step.action.env and step.action.image is None
        self.static = plain or not any(True for _, value in action_values(step.action) for _ in expressions(value))
        self.anew = not self.static and any(
            path[0] == "attempt"
            for _, value in action_values(step.action)
            for expr in expressions(value)
            for path in references(expr.text)
        )
        """Its action depends on the number of the try."""
        self.laid = bool(step.mounts) and any(
            type(text) is not str for mount in step.mounts for text in (mount.sub_path, *mount.files.values())
        )
        """Its mounts contain expressions, evaluated for each task."""
        asks = isinstance(step.action, Suspend) or step.answer is not None
        self.keyed = step.cache.key is not None and step.cache.enabled and not asks
        """The author gives the cache key."""
        self.private = not step.cache.enabled or (
            not self.keyed
            and (
                isinstance(step.action, (Suspend, Http, Resource, Nested))
                or asks
                or (
                    bool(step.mounts) and any(mount.scope == "run" for mount in step.mounts)
                )  # a folder that tasks share
            )
        )
        self.prefix = b"" if self.private or self.keyed else self._prefix(prefixes, plain)
        self.widened: Step | None = None
        self.shape: str | None = None
        """The shape of its pods, once it is known (see allocation)."""

    def _prefix(self, known: dict[Any, bytes], plain: bool) -> bytes:
        """The part of a key that is the same for all tasks of a step; computed once for steps that do the same."""
        step = self.step
        alike: Any = None
        if plain and not any(given.path for given in step.inputs):
            action = step.action
            assert isinstance(action, Function)
            alike = (action.code, action.module, action.name, step.outputs, step.replicas, step.cache.version)
            try:
                if (prefix := known.get(alike)) is not None:
                    return prefix
            except TypeError:  # a default that is a list
                alike = None
        found = canonical(_identity(step, self.static)).encode("utf-8", "surrogatepass")
        if alike is not None:
            known[alike] = found
        return found

    def asking(self, resources: Mapping[str, int]) -> StepPlan:
        """The same step with these resources: what the run has found of what it asks for."""
        found = copy(self)
        found.step, found.shape, found.widened = dataclasses.replace(self.step, resources=resources), None, None
        return found

    def inputs(
        self, params: Mapping[str, Any], steps: Mapping[str, Any], view: Mapping[str, Any], item: Any
    ) -> dict[str, Any]:
        """Raises EvaluationError, KeyError."""
        try:
            return self._inputs(self.getters, params, steps, view, item)
        except (EvaluationError, KeyError):
            if self.optional is None:
                raise
        return self._most_inputs(params, steps, view, item)

    def _inputs(
        self,
        getters: Iterable[tuple[str, int, Any]],
        params: Mapping[str, Any],
        steps: Mapping[str, Any],
        view: Mapping[str, Any],
        item: Any,
    ) -> dict[str, Any]:
        found = {}
        for name, mode, payload in getters:
            if mode == _CONST:
                found[name] = payload
            elif mode == _ITEM:
                found[name] = item[payload]
            elif mode == _PARAM:
                found[name] = params[payload]
            elif mode == _OUTPUT:
                up, output = payload
                outputs = steps[up]["outputs"]
                if output not in outputs:
                    raise EvaluationError(f"{up} gave no {output}")
                found[name] = outputs.raw(output)
            else:
                found[name] = passed_on(payload, view if item is None else {**view, "item": item})
        return found

    def _most_inputs(
        self, params: Mapping[str, Any], steps: Mapping[str, Any], view: Mapping[str, Any], item: Any
    ) -> dict[str, Any]:
        """Defaults in place of the outputs of steps that were skipped."""
        assert self.optional is not None
        found: dict[str, Any] = {}
        for getter, given in zip(self.getters, self.step.inputs, strict=True):
            try:
                found |= self._inputs((getter,), params, steps, view, item)
            except (EvaluationError, KeyError):
                if given.name not in self.optional or not _lacks(given.value, steps):
                    raise
                instead = self.optional[given.name]
                if instead is not MISSING:
                    found[given.name] = passed_on(instead, view if item is None else {**view, "item": item})
        return found

    def action(
        self, view: Mapping[str, Any], inputs: Mapping[str, Any], item: Any, fetch: Fetch, tries: int = 0
    ) -> Action:
        """The action with its expressions replaced; `tries`: how many have failed before. Raises EvaluationError."""
        action = self.step.action
        if self.static:
            return action
        scope = self.within(view, inputs, item, fetch)
        if self.anew:
            scope["attempt"] = {"number": tries}
        return with_values(action, {name: resolve(value, scope) for name, value in action_values(action)})

    def within(self, view: Mapping[str, Any], inputs: Mapping[str, Any], item: Any, fetch: Fetch) -> dict[str, Any]:
        """What can be read inside the step."""
        places = self.paths(inputs)
        seen = (
            loaded({**inputs, **places}, fetch)
            if places or any(type(v) is Stored or type(v) is list for v in inputs.values())
            else inputs
        )
        return {**view, "inputs": seen} if item is None else {**view, "inputs": seen, "item": item}

    def paths(self, inputs: Mapping[str, Any]) -> dict[str, str]:
        """A command sees a file by the path at which it is placed."""
        found = {}
        for given in self.step.inputs:
            value = inputs.get(given.name)
            if type(value) is Stored and value.kind in ("file", "dir"):
                found[given.name] = given.path or f"{FILES}/{given.name}"
        return found

    def ordered(self, inputs: Mapping[str, Any], view: Mapping[str, Any], item: Any, fetch: Fetch) -> Step:
        """The step as a backend gets it: with a path for each file that is given to a command without one, and with what only
        the engine knows put into the expressions that are evaluated when the answer is there."""
        action = self.step.action
        if isinstance(action, (Http, Resource)):
            return self._bound({**view, "inputs": loaded(inputs, fetch), **({} if item is None else {"item": item})})
        if not isinstance(action, (Container, Script, Pod)):
            return self.step
        step = self._pathed(inputs)
        if not self.laid:
            return step
        return dataclasses.replace(step, mounts=self.mounts(self.within(view, inputs, item, fetch)))

    def _pathed(self, inputs: Mapping[str, Any]) -> Step:
        places = self.paths(inputs)
        if not any(given.path is None and given.name in places for given in self.step.inputs):
            return self.step
        if self.widened is None:
            given = tuple(dataclasses.replace(one, path=one.path or places.get(one.name)) for one in self.step.inputs)
            self.widened = dataclasses.replace(self.step, inputs=given)
        return self.widened

    def mounts(self, scope: Mapping[str, Any]) -> tuple[Mount, ...]:
        """What it mounts, as plain text. Raises EvaluationError."""
        return tuple(
            dataclasses.replace(
                mount,
                sub_path=to_text(resolve(mount.sub_path, scope)),
                files={name: _file_text(resolve(text, scope)) for name, text in mount.files.items()},
            )
            for mount in self.step.mounts
        )

    def _bound(self, scope: Mapping[str, Any]) -> Step:
        def known(node: Node) -> Node:
            paths = {
                path[: _DEPTH[path[0]]] for path in references(show(node)) if path[0] in _DEPTH and path[0] in scope
            }
            return replace(node, {path: as_node(_written_out(evaluate(reference(*path), scope))) for path in paths})

        outputs = tuple(
            output if output.value is MISSING else dataclasses.replace(output, value=map_value(output.value, known))
            for output in self.step.outputs
        )
        return dataclasses.replace(self.step, outputs=outputs)

    def key(
        self,
        inputs: Mapping[str, Any],
        action: Action,
        memo: dict[int, tuple[Any, str]],
        variant: str = "",
        mounts: Sequence[Mount] = (),
    ) -> str:
        """The digest of what determines the output: what is done and what it is done to, by value. `mounts`: if they are other
        ones for each task."""
        parts = inputs
        for value in inputs.values():
            if type(value) not in _SCALARS:
                parts = {name: one if type(one) in _SCALARS else _by_content(one, memo) for name, one in inputs.items()}
                break
        dynamic = _text(parts) if self.static else _text([parts, _plain_action(action)])
        if mounts:
            dynamic += _text([encode(mount) for mount in mounts])
        return hashlib.sha256(self.prefix + (variant + dynamic).encode("utf-8", "surrogatepass")).hexdigest()

    def own_key(self, scope: Mapping[str, Any], variant: str = "") -> str:
        """The digest of the author's own cache key. Raises EvaluationError."""
        said = to_text(resolve(self.step.cache.key, scope))
        text = _text(["memo", said, *((self.step.cache.version,) if self.step.cache.version else ())])
        return hashlib.sha256((variant + text).encode("utf-8", "surrogatepass")).hexdigest()

    def defaults(self) -> dict[str, Any]:
        """Outputs of a step that was skipped."""
        looped = self.step.each is not None
        found: dict[str, Any] = {}
        for output in self.named_outputs:
            if output.default is not MISSING:
                found[output.name] = resolve(output.default, {})
            elif looped:
                found[output.name] = []
        return found


def _file_text(value: Any) -> Any:
    return value if type(value) is Secret else to_text(value)


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=repr)
_made = json.encoder.c_make_encoder and json.encoder.c_make_encoder(  # type: ignore[attr-defined]
    None, repr, json.encoder.encode_basestring, None, ":", ",", True, False, True
)


def _text(value: Any) -> str:
    """Canonical JSON. Python's encoder is made anew for each call of `encode`, which takes longer than the call."""
    return _encoder.encode(value) if _made is None else "".join(_made(value, 0))


def _by_content(value: Any, memo: dict[int, tuple[Any, str]]) -> Any:
    """Lists and maps by their digest, remembered while the object lives: a thousand tasks may be given the same list."""
    if type(value) is Stored:
        return ["$stored", value.kind, value.digest, value.name]
    known = memo.get(id(value))
    if known is not None and known[0] is value:
        return known[1]
    found = hashlib.sha256(_text(_stored_inside(value)).encode("utf-8", "surrogatepass")).hexdigest()
    if len(memo) > 256:
        memo.clear()
    memo[id(value)] = (value, f"$sha256:{found}")
    return memo[id(value)][1]


def _stored_inside(value: Any) -> Any:
    kind = type(value)
    if kind is Stored:
        return ["$stored", value.kind, value.digest, value.name]
    if kind is list or kind is tuple:
        return [item if type(item) in _SCALARS else _stored_inside(item) for item in value]
    if kind is dict:
        return {key: item if type(item) in _SCALARS else _stored_inside(item) for key, item in value.items()}
    if kind is range:
        return list(value)
    return value


_DEPTH: Final = {"params": 2, "inputs": 2, "item": 2, "steps": 4, "run": 2}
"""How much of a path names one value."""


def _written_out(value: Any) -> Any:
    return list(value) if isinstance(value, range) else value


def passed_on(value: Any, scope: Mapping[str, Any]) -> Any:
    """A value resolved. Outputs that are only passed on, also in lists and maps, stay as they are: a file in a list of results
    is not opened. Raises EvaluationError."""
    if isinstance(value, Expr):
        return _passed_on(value.node, scope)
    if isinstance(value, (tuple, list)):
        return [passed_on(item, scope) for item in value]
    if isinstance(value, dict):
        return {key: passed_on(item, scope) for key, item in value.items()}
    return resolve(value, scope)


def _passed_on(node: Node, scope: Mapping[str, Any]) -> Any:
    if isinstance(node, ListOf):
        return [_passed_on(item, scope) for item in node.items]
    if isinstance(node, MapOf):
        return {str(evaluate(key, scope)): _passed_on(item, scope) for key, item in node.items}
    if isinstance(node, Choice):
        test = evaluate(node.test, scope)
        if isinstance(test, bool):
            return _passed_on(node.yes if test else node.no, scope)
    if isinstance(node, Call) and node.name == "default" and node.of is None:
        try:
            found = _passed_on(node.args[0], scope)
        except NotKnown:
            raise
        except EvaluationError:
            found = None
        return _passed_on(node.args[1], scope) if found is None else found
    if isinstance(node, Call) and node.name in _OF_LISTS and node.of is None:
        found = _of_lists(node.name, [_passed_on(arg, scope) for arg in node.args])
        return evaluate(node, scope) if found is None else found
    path = path_of(node)
    if path is not None and len(path) == 4 and path[0] == "steps" and path[2] == "outputs" and "steps" in scope:
        outputs = scope["steps"].get(path[1], {}).get("outputs")
        if isinstance(outputs, Loaded) and path[3] in outputs:
            return outputs.raw(path[3])
    if path is not None and len(path) == 2 and path[0] == "params":
        params = scope.get("params")
        if isinstance(params, Loaded) and path[1] in params:
            return params.raw(path[1])
    return evaluate(node, scope)


def _of_lists(name: str, args: Sequence[Any]) -> Any:
    """A list that is cut to the length of another: without a look at its items, which may be objects. None for anything else."""
    match name, args:
        case "slice", [list() | tuple() | range() as items, 0, end] if type(end) is int:
            return items[:end]
        case "py_list", [list() as items]:
            return items
        case "size", [list() | tuple() | range() as items]:
            return len(items)
        case "min", [one, other] if type(one) is type(other) is int:
            return min(one, other)
    return None


_OF_LISTS = frozenset(("slice", "py_list", "size", "min"))


def _lacks(value: Any, steps: Mapping[str, Any]) -> bool:
    """Does it read an output that a step did not give?"""
    return any(
        path[0] == "steps" and len(path) > 3 and path[3] not in steps.get(path[1], {}).get("outputs", {})
        for expr in expressions(value)
        for path in references(expr.text)
        if path[2:3] == ("outputs",)
    )


def lock_names(locks: Sequence[Lock], scope: Mapping[str, Any]) -> dict[str, int]:
    """Name -> how many may hold it. Raises EvaluationError."""
    found: dict[str, int] = {}
    for lock in locks:
        name = to_text(resolve(lock.name, scope))
        if not name:
            raise EvaluationError("the name of its lock is empty")
        found[name] = min(lock.limit, found.get(name, lock.limit))
    return found


def _getter(value: Any) -> tuple[int, Any]:
    if isinstance(value, Expr):
        path = simple_path(value.text)
        if path is not None:
            if len(path) == 2 and path[0] == "item":
                return _ITEM, path[1]
            if len(path) == 2 and path[0] == "params":
                return _PARAM, path[1]
            if len(path) == 4 and path[0] == "steps" and path[2] == "outputs":
                return _OUTPUT, (path[1], path[3])
        return _EXPR, value
    if any(True for _ in expressions(value)):
        return _EXPR, value
    return _CONST, resolve(value, {}) if isinstance(value, (tuple, dict)) else value


def _identity(step: Step, static: bool) -> dict[str, Any]:
    """The part of a key that is the same for all tasks of a step."""
    data: dict[str, Any] = {"outputs": [[o.name, str(o.type), o.path] for o in step.outputs]}
    paths = {given.name: given.path for given in step.inputs if given.path is not None}
    if paths:
        data["paths"] = paths
    if static:
        data["action"] = _plain_action(step.action)
    if step.replicas != 1:
        data["replicas"] = step.replicas
    if step.cache.version:
        data["version"] = step.cache.version
    if step.mounts:
        data["mounts"] = [encode(mount) for mount in step.mounts]
    return data


def _plain_action(action: Action) -> dict[str, Any]:
    if isinstance(action, Function):
        name = {} if action.code else {"module": action.module, "name": action.name}
        return {"function": action.code, "image": action.image, "env": dict(action.env), **name}
    data: dict[str, Any] = encode(action)
    return data


class Blueprint:
    """One workflow: its steps by number in topological order, the exit handlers last."""

    awaiting = False
    """Some step waits for payloads."""
    locking = False
    """Of the root: something in it needs a lock."""
    sharing = False
    """Of the root: tasks in it share a folder."""

    def __init__(self, workflow: Workflow, links: Links) -> None:
        self.workflow = workflow
        exits = {step.name for step in workflow.on_exit}
        by_name = {step.name: step for step in (*workflow.steps, *workflow.on_exit)}
        names = [name for name in links.order if name not in exits]
        names += [name for name in links.order if name in exits]
        self.main = len(names) - len(exits)
        """Steps with a lower number are the workflow proper."""
        prefixes: dict[Any, bytes] = {}
        self.plans = [StepPlan(by_name[name], number, prefixes) for number, name in enumerate(names)]
        for plan in self.plans[self.main :]:
            plan.private, plan.keyed = True, False  # an exit handler must run each time
        self.number = {name: number for number, name in enumerate(names)}
        for plan in self.plans:
            asked = links.edges[plan.step.name]
            # Exit handlers run when all other steps have ended, so they wait for each other only.
            ups = [
                (self.number[up], outcomes)
                for up, outcomes in asked.items()
                if up in self.number and (plan.number < self.main or self.number[up] >= self.main)
            ]
            plan.edges = tuple(ups)
            for up, _ in ups:
                self.plans[up].followers.append(plan.number)
        self.leaves = [
            plan
            for plan in self.plans[: self.main]
            if not plan.step.exempt and all(self.plans[one].step.exempt for one in plan.followers)
        ]
        """Steps of the workflow proper that none waits for."""


def blueprints(workflow: Workflow, links: Mapping[str, Links]) -> Blueprint:
    """The root's, with those of its definitions tied in."""
    made = {definition.name: Blueprint(definition, links[definition.name]) for definition in workflow.definitions}
    root = Blueprint(workflow, links[""])
    for blueprint in (root, *made.values()):
        for plan in blueprint.plans:
            if isinstance(plan.step.action, Nested):
                _tie(plan, made[plan.step.action.name])
    every = (workflow, *workflow.definitions)
    root.awaiting = any(
        isinstance(step.action, Suspend) and step.action.payloads is not None
        for one in every
        for step in (*one.steps, *one.on_exit)
    )
    root.locking = any(one.locks or any(step.locks for step in (*one.steps, *one.on_exit)) for one in every)
    root.sharing = any(
        mount.scope == "run" for one in every for step in (*one.steps, *one.on_exit) for mount in step.mounts
    )
    return root


def _tie(plan: StepPlan, inner: Blueprint) -> None:
    plan.inner = inner
    plan.named_outputs = inner.workflow.outputs
    known = {param.name for param in inner.workflow.params if param.default is not MISSING}
    spare = {given.name: MISSING for given in plan.step.inputs if given.name in known}
    if spare:
        plan.optional = {**spare, **(plan.optional or {})}


class Items:
    """The combinations of a for-each by number, without writing out what can be computed."""

    __slots__ = ("_axes", "_listed", "count")

    def __init__(
        self, axes: Sequence[Mapping[str, Any]], view: Mapping[str, Any], each: Callable[..., Iterable[dict[str, Any]]]
    ) -> None:
        """Raises EvaluationError, or ValueError if lists that advance together differ in length."""
        self._listed: list[dict[str, Any]] | None = None
        self._axes: list[tuple[dict[str, Any], int]] = []
        if any("item" in expr.text for axis in axes for value in axis.values() for expr in expressions(value)):
            self._listed = list(each(axes, view))
            self.count = len(self._listed)
            return
        self.count = 1
        for axis in axes:
            lists = {name: _sequence(name, value, view) for name, value in axis.items()}
            sizes = {len(one) for one in lists.values()}
            if len(sizes) > 1:
                raise ValueError(
                    "the lists " + ", ".join(f"{n} ({len(v)})" for n, v in lists.items()) + " differ in length"
                )
            size = sizes.pop()
            self._axes.append((lists, size))
            self.count *= size

    @classmethod
    def listed(cls, items: list[dict[str, Any]]) -> Items:
        """A given list of items."""
        made = cls((), {}, lambda axes, view: ())
        made._listed, made.count = items, len(items)
        return made

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self._listed is not None:
            return self._listed[index]
        if len(self._axes) == 1:
            return {name: values[index] for name, values in self._axes[0][0].items()}
        found: dict[str, Any] = {}
        for lists, size in reversed(self._axes):
            index, at = divmod(index, size)
            found.update({name: values[at] for name, values in lists.items()})
        return found


def _sequence(name: str, value: Any, view: Mapping[str, Any]) -> Any:
    if isinstance(value, tuple) and not any(True for _ in expressions(value)):
        return value if set(map(type, value)) <= _SCALARS else resolve(value, {})
    found = passed_on(value, view)
    if type(found) is Stored:  # a list too long to be kept inline
        found = evaluate(value, view) if isinstance(value, Expr) else resolve(value, view)
    if isinstance(found, dict):
        return list(found)
    if not isinstance(found, list | tuple | range):
        raise EvaluationError(f"{name} is {type(found).__name__}, not a list")
    return found
