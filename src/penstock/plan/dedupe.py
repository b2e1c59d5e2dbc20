"""Content keys: the digest of what determines a step's output. Called by plan.make, merge and diff.

Part of a key: the action (image, command, code, script), the inputs, the names of the outputs, and the keys of the steps that it reads. Not
part of it: names, resources, queue, retries, time limits, conditions. Two steps with one key give the same result, so one execution
serves both.

A parameter with a value counts as that value. A step that must run each time (`cache=False`), or that has side effects (suspend, http,
resource), gets a unique key, and so does every step that reads it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.expressions.evaluate import ABSENT, EvaluationError, resolve, to_text
from penstock.expressions.parse import Expr, Node, reference, references, replace, simple_path
from penstock.expressions.template import Template
from penstock.graph.codec import canonical, digest_of, encode, encode_value
from penstock.graph.model import (
    MISSING,
    Container,
    Function,
    Http,
    Nested,
    Output,
    Pod,
    Resource,
    Script,
    Step,
    Suspend,
    Value,
    Workflow,
    action_values,
    expressions,
)
from penstock.graph.rewrite import as_node, map_value

_KEY = re.compile(r"sha256:[0-9a-f]{64}")
Identity = dict[str, Any]


@dataclass(slots=True)
class Keys:
    """The keys of one workflow with its parameters, by path."""

    keys: dict[str, str] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)
    """Key -> the data that it is the digest of."""
    paths: dict[str, str] = field(default_factory=dict)
    """Key -> a step with that key."""
    private: dict[str, str] = field(default_factory=dict)
    """Steps that are never shared, and why."""


def content_keys(
    workflow: Workflow, params: Mapping[str, Any], orders: Mapping[str, tuple[list[str], Any]], salt: str = ""
) -> Keys:
    """`salt` makes the unique keys of one workflow differ from those of another."""
    known = {param.name: params.get(param.name, param.default) for param in workflow.params}
    return _Keying(workflow, orders, salt).run(known)


class _Keying:
    def __init__(self, workflow: Workflow, orders: Mapping[str, tuple[list[str], Any]], salt: str) -> None:
        self.workflow = workflow
        self.definitions = {definition.name: definition for definition in workflow.definitions}
        self.orders = orders
        self.salt = salt
        self.found = Keys()
        self.private_keys: set[str] = set()
        self.inside: list[str] = []
        """The definitions that are being visited: one that calls itself is visited once."""

    def run(self, params: Mapping[str, Any]) -> Keys:
        given: dict[str, Value] = {
            name: Expr.tree(reference("params", name)) if value is MISSING else value for name, value in params.items()
        }
        self.level(self.workflow, "", given, "")
        return self.found

    def level(self, workflow: Workflow, key: str, params: Mapping[str, Value], prefix: str) -> dict[str, str]:
        """Keys of the steps of one workflow, by name, given its parameters."""
        by_name = {step.name: step for step in (*workflow.steps, *workflow.on_exit)}
        keys: dict[str, str] = {}
        for name in self.orders[key][0]:
            keys[name] = self.step(by_name[name], _Scope(params, keys), prefix)
        return keys

    def step(self, step: Step, scope: _Scope, prefix: str) -> str:
        path = prefix + step.name
        private = _private(step) or _reads_outcomes(step)
        identity = self.identity(step, scope, path)
        if not private and self.private_keys:
            text = canonical(identity)
            private = "it reads a step that runs each time" if any(key in text for key in self.private_keys) else ""
        if private:
            self.found.private[path] = private
            identity = {**identity, "private": [self.salt, path]}
        key = digest_of(identity)
        if private:
            self.private_keys.add(key)
        self.found.keys[path] = key
        self.found.paths.setdefault(key, path)
        self.found.identities[path] = identity
        return key

    def identity(self, step: Step, scope: _Scope, path: str) -> Identity:
        inputs = {given.name: scope.identity(given.value) for given in step.inputs}
        data: Identity = {"action": self.action(step, scope, path), "inputs": inputs}
        paths = {given.name: given.path for given in step.inputs if given.path is not None}
        if paths:
            data["input paths"] = paths
        defaults = {given.name: scope.identity(given.default) for given in step.inputs if given.default is not MISSING}
        if defaults:
            data["input defaults"] = defaults
        if step.mounts:
            data["mounts"] = [
                [
                    one.name,
                    one.path,
                    one.scope,
                    scope.identity(one.sub_path),
                    scope.identity(dict(one.files)),
                    one.read_only,
                ]
                for one in step.mounts
            ]
        if not isinstance(step.action, Nested):
            data["outputs"] = [self.output(output, scope) for output in step.outputs]
        if step.each is not None:
            data["each"] = [{name: scope.identity(items) for name, items in axis.items()} for axis in step.each.axes]
            if step.each.enough is not None:
                data["enough"] = encode(step.each.enough)
        if step.when is not None and (step.each is not None or any(o.default is not MISSING for o in step.outputs)):
            # Which items pass a filter, and whether a default is used, is part of the result.
            data["when"] = scope.identity(step.when)
        if step.loop is not None:
            data["loop"] = {**encode(step.loop), "condition": scope.identity(step.loop.condition)}
        if step.replicas != 1:
            data["replicas"] = step.replicas
        if step.cache.version:
            data["version"] = step.cache.version
        if step.cache.key is not None:
            data["key"] = scope.identity(step.cache.key)
        return data

    def output(self, output: Output, scope: _Scope) -> Any:
        default = [] if output.default is MISSING else [encode_value(output.default)]
        value = [] if output.value is MISSING else [scope.identity(output.value)]
        return [output.name, str(output.type), output.path, default, value]

    def action(self, step: Step, scope: _Scope, path: str) -> Identity:
        match step.action:
            case Function(code=code, image=image, env=env) as function:
                name = {} if code else {"module": function.module, "name": function.name}
                return {"function": code, "image": scope.identity(image), "env": scope.identity(env), **name}
            case Container(image=image, command=command, args=args, env=env, workdir=workdir):
                words = {"command": scope.identity(command), "args": scope.identity(args)}
                return {"container": scope.identity(image), **words, "env": scope.identity(env), "workdir": workdir}
            case Script(source=source, command=command, image=image, env=env, workdir=workdir):
                text = {
                    "script": scope.identity(source),
                    "command": scope.identity(command),
                    "image": scope.identity(image),
                }
                return {**text, "env": scope.identity(env), "workdir": workdir}
            case Nested(name=name):
                return self.nested(step, name, scope, path)
            case Pod():
                values = {name: scope.identity(value) for name, value in action_values(step.action)}
                return {"pod": values, "as written": encode(step.action)}
            case other:
                return {other.kind: encode(other)}

    def surroundings(self, step: Step, scope: _Scope, given: Mapping[str, Value]) -> str:
        """Distinguishes the items of one loop, and the rounds of one while, from those of another."""
        if step.each is None and step.loop is None:
            return ""
        axes = [] if step.each is None else [{k: scope.identity(v) for k, v in axis.items()} for axis in step.each.axes]
        loop = None if step.loop is None else [encode(step.loop), {k: scope.identity(v) for k, v in given.items()}]
        return digest_of([axes, loop])

    def nested(self, step: Step, name: str, scope: _Scope, path: str) -> Identity:
        """The key of a nested workflow is that of its outputs. Its steps get keys as if they were written in place of the call."""
        target = self.definitions[name]
        given = {item.name: item.value for item in step.inputs}
        if name in self.inside:
            self.found.private.setdefault(path, "it calls itself")
            return {"workflow": name, "inputs": scope.identity(given)}
        changing = set(step.loop.carry) if step.loop is not None else set()
        around = self.surroundings(step, scope, given)
        params: dict[str, Value] = {}
        for param in target.params:
            value = given.get(param.name, param.default)
            if param.name in changing:
                params[param.name] = Expr.tree(reference("round", around, param.name))
            elif value is MISSING:
                params[param.name] = Expr.tree(reference("params", param.name))
            else:
                outer: dict[tuple[str, ...], Node] = {("item",): reference("item_of", around)}
                params[param.name] = map_value(scope.stand_in(value), functools.partial(replace, swap=outer))
        self.inside.append(name)
        keys = self.level(target, name, params, path + "/")
        self.inside.pop()
        inside = _Scope(params, keys)
        if any(self.found.private.get(f"{path}/{inner}") for inner in keys):
            self.found.private.setdefault(path, "a step inside it runs each time")
        outputs = {output.name: inside.identity(output.value) for output in target.outputs}
        return {"workflow": outputs, "steps": sorted(keys.values())}


def _reads_outcomes(step: Step) -> str:
    """The outcome of a step depends on more than its content."""
    for given in step.inputs:
        for expr in (given.value,) if type(given.value) is Expr else expressions(given.value):
            if any(
                word in expr.text
                for word in (".outcome", '["outcome"]', ".exit_code", '["exit_code"]', ".error", '["error"]')
            ):
                return "it reads how another step ended"
    return ""


def _private(step: Step) -> str:
    if not step.cache.enabled:
        return "cache is off"
    if step.answer is not None:
        return "it waits for an answer from outside"
    if step.cache.key is not None and not isinstance(step.action, Suspend):
        return ""
    if any(mount.scope == "run" for mount in step.mounts):
        return "it shares a folder with other steps"
    if isinstance(step.action, Suspend | Http | Resource):
        return f"a {step.action.kind} step acts on the world outside"
    return ""


@dataclass(slots=True)
class _Scope:
    """The meaning of names: parameters are values or expressions of the caller, steps are their keys."""

    params: Mapping[str, Value]
    keys: Mapping[str, str]

    def identity(self, value: Value) -> Any:
        """The value itself if it is known now; otherwise the expression as text, with keys for names.

        As in documents, text that has `${{` in it without being an expression is escaped: nothing else can look like one."""
        kind = type(value)
        if not value or (kind is str and "${{" not in value):
            return value
        if kind is tuple and all(type(item) is str and "${{" not in item for item in value):
            return value
        if kind is Expr:
            path = simple_path(value.text)
            if path is not None and len(path) == 4 and path[1] in self.keys:
                return f'${{{{ steps["{self.keys[path[1]]}"].outputs.{path[3]} }}}}'
            return encode_value(self.stand_in(value))
        if isinstance(value, Template):
            found = self.stand_in(value)
            return encode_value(found)
        if isinstance(value, tuple | list):
            if not any(True for _ in expressions(value)):
                return encode_value(value)
            return [self.identity(item) for item in value]
        if isinstance(value, dict):
            return {key: self.identity(item) for key, item in value.items()}
        return encode_value(value)

    def stand_in(self, value: Value) -> Value:
        """The value with parameters and steps replaced by their meaning, evaluated as far as possible."""
        if isinstance(value, Template):
            parts = tuple(part if isinstance(part, str) else self.stand_in(part) for part in value.parts)
            spelled = tuple(part if isinstance(part, str | Expr) else to_text(part) for part in parts)
            return Template(spelled) if any(isinstance(part, Expr) for part in spelled) else "".join(map(str, spelled))
        if isinstance(value, tuple | list):
            return tuple(self.stand_in(item) for item in value) if any(True for _ in expressions(value)) else value
        if isinstance(value, dict):
            return {key: self.stand_in(item) for key, item in value.items()}
        if not isinstance(value, Expr):
            return value
        swap: dict[tuple[str, ...], Node] = {}
        known: dict[str, Any] = {}
        for path in references(value.text):
            if path[0] == "params" and len(path) > 1 and path[1] in self.params:
                given = self.params[path[1]]
                if any(True for _ in expressions(given)):
                    swap["params", path[1]] = as_node(given)
                else:
                    known[path[1]] = given
            elif path[0] == "steps" and len(path) > 1 and path[1] in self.keys:
                swap["steps", path[1]] = reference("steps", self.keys[path[1]])
        if known:
            try:
                return _tuples(
                    resolve(
                        value,
                        {
                            "params": {**dict.fromkeys(self.params, ABSENT), **known},
                            "steps": ABSENT,
                            "item": ABSENT,
                            "inputs": ABSENT,
                        },
                    )
                )
            except EvaluationError:
                swap |= {("params", name): as_node(item) for name, item in known.items()}
        return Expr.tree(replace(value.node, swap)) if swap else value


def _tuples(value: Any) -> Value:
    if isinstance(value, range):
        return Expr.of(f"range({value.start}, {value.stop}, {value.step})")
    if isinstance(value, list | tuple):
        return tuple(map(_tuples, value))
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return value


def why_differ(a: Keys, b: Keys, path_a: str, path_b: str) -> list[str]:
    """Sentences that say how two keys differ. Empty if they are equal."""
    if a.keys[path_a] == b.keys[path_b]:
        return []
    found = list(_differences(a.identities[path_a], b.identities[path_b], "", a.paths, b.paths))
    return list(dict.fromkeys(found)) or ["it runs each time"]


def _differences(a: Any, b: Any, where: str, names_a: Mapping[str, str], names_b: Mapping[str, str]) -> Iterator[str]:
    if a == b and type(a) is type(b):
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(other for other in b if other not in a)]:
            inner = where if key == "action" else f"{where} {key}".strip()
            if key == "private":
                yield "it runs each time"
            else:
                yield from _differences(a.get(key), b.get(key), inner, names_a, names_b)
        return
    ups = _changed_ups(str(a), str(b), names_a, names_b)
    if ups:
        yield f"{', '.join(ups)} changed"
    else:
        yield f"{where}: {_shown(a, names_a)} → {_shown(b, names_b)}"


def _changed_ups(a: str, b: str, names_a: Mapping[str, str], names_b: Mapping[str, str]) -> list[str]:
    """The steps whose keys differ, if the two texts differ in nothing else: the step itself has not changed, what it reads has."""
    keys_a, keys_b = _KEY.findall(a), _KEY.findall(b)
    if not keys_a or len(keys_a) != len(keys_b) or _KEY.sub("", a) != _KEY.sub("", b):
        return []
    pairs = [(x, y) for x, y in zip(keys_a, keys_b, strict=True) if x != y]
    named = [names_a.get(x) for x, y in pairs if names_a.get(x) == names_b.get(y)]
    if len(named) != len(pairs) or not all(named):
        return ["what the round before it gave"] if 'round["' in a else []
    return list(dict.fromkeys(str(name) for name in named))


def _shown(value: Any, names: Mapping[str, str]) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    for key in _KEY.findall(text):
        text = text.replace(f'steps["{key}"]', f"{names.get(key, 'a step')} ({key[7:15]})").replace(key, key[:15])
    return text if len(text) <= 80 else text[:40] + "…" + text[-36:]
