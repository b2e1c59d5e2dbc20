"""Rules for one path that an expression reads, such as `steps.train.outputs.score`. Called by check.values.

Each root has a rule of its own in `_RULES`. A rule reports what is wrong and returns whether the path can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.errors import nearest
from penstock.expressions.parse import Choice, ListOf, MapOf, Node, path_of, references, show
from penstock.expressions.secret import CALLBACK, CALLBACKS
from penstock.expressions.secret import ROOT as SECRETS
from penstock.graph.check.context import FIELDS, Context, ReadScope

Path = tuple[str, ...]
Rule = Callable[[Context, Path, ReadScope, str], bool]

SECRET_PLACES: Final = (
    "inputs.",
    "container.env",
    "script.env",
    "function.env",
    "pod.parts",
    "http.headers",
    "http.body",
    "mounts.",
    "container.command",
    "container.args",
    "script.source",
)
"""Fields that may hold secrets. Those in words and scripts are for other systems: `penstock run` refuses them."""
CALLBACK_PLACES: Final = SECRET_PLACES[:7]
"""Fields that may hold the token of an answer: others see the rest."""
STEP_FIELDS: Final = ("outputs", "outcome", "exit_code", "error", "succeeded")


def check_path(context: Context, path: Path, scope: ReadScope, field: str) -> bool:
    """Can an expression in this field read the path?"""
    root = path[0]
    if root == SECRETS:
        return _secret(context, path, scope, field)
    if root not in scope.roots:
        return _unreadable_root(context, root, scope, field)
    if root == CALLBACK:
        return _callback(context, path, scope, field)
    rule = _RULES.get(root)
    return len(path) == 1 or rule is None or rule(context, path, scope, field)


def check_known_step(context: Context, name: str, scope: ReadScope, field: str) -> bool:
    if name in context.steps:
        return True
    context.report(
        "P201",
        f"there is no step {name!r}",
        f"add it to the workflow, or name another.{nearest(name, context.steps)}",
        scope.at(field),
        scope.source,
    )
    return False


def _unreadable_root(context: Context, root: str, scope: ReadScope, field: str) -> bool:
    known = sorted(scope.roots)
    if root in context.params:
        hint = f"write params.{root}"
    elif root in context.steps:
        hint = "write steps.NAME.outputs.OUTPUT"
    else:
        hint = f"read one of {', '.join(known)}.{nearest(root, known)}"
    context.report("P204", f"{root!r} cannot be read here", hint, scope.at(field), scope.source)
    return False


def _secret(context: Context, path: Path, scope: ReadScope, field: str) -> bool:
    if len(path) == 2 and path[1].rstrip("?") and field.startswith(SECRET_PLACES):
        return True
    what = "a secret cannot be read here" if len(path) == 2 else f"{'.'.join(path)} names no secret"
    fix = "write secrets.NAME as the value of a variable (env), an input, a header or body of a request, or a mounted file"
    context.report("P284", what, fix, scope.at(field), scope.source)
    return False


def _callback(context: Context, path: Path, scope: ReadScope, field: str) -> bool:
    if len(path) == 2 and path[1] in CALLBACKS and field.startswith(CALLBACK_PLACES):
        return True
    known = len(path) == 2 and path[1] in CALLBACKS
    what = f"{'.'.join(path)} cannot be read here" if known else f"there is no {'.'.join(path)}"
    fix = "write callback.token or callback.url as the value of a variable (env), an input, or a header or body of a request"
    context.report("P531", what, fix, scope.at(field), scope.source)
    return False


def computes_with_secret(node: Node) -> bool:
    """Nothing can: its value is known to nobody until an attempt starts. It may be chosen, and put into a list or map."""
    match node:
        case Choice(test, yes, no):
            return _reads_secret(test) or computes_with_secret(yes) or computes_with_secret(no)
        case ListOf(items):
            return any(map(computes_with_secret, items))
        case MapOf(items):
            return any(_reads_secret(key) or computes_with_secret(value) for key, value in items)
        case _:
            return path_of(node) is None and _reads_secret(node)


def _reads_secret(node: Node) -> bool:
    return any(path[0] in (SECRETS, CALLBACK) for path in references(show(node)))


def report_computed(context: Context, path: Path, scope: ReadScope, field: str) -> bool:
    """Always False."""
    what = f"{path[0]}.{path[1]} is computed with, and its value is known to nobody before the step that is given it"
    fix = "give the step the secret itself; to put it into a text: f\"Bearer {secret('NAME')}\", or Bearer ${{ secrets.NAME }}"
    context.report("P284", what, fix, scope.at(field), scope.source)
    return False


def _parameter(context: Context, path: Path, scope: ReadScope, field: str) -> bool:
    if path[1] in context.params:
        return True
    context.report(
        "P203",
        f"there is no parameter {path[1]!r}",
        f"declare it under `params`.{nearest(path[1], context.params)}",
        scope.at(field),
        scope.source,
    )
    return False


def _step(context: Context, path: Path, scope: ReadScope, field: str) -> bool:
    if not check_known_step(context, path[1], scope, field):
        return False
    if len(path) < 3 or path[2] not in STEP_FIELDS:
        context.report(
            "P202",
            f"{'.'.join(path)} is neither an output nor an outcome",
            f"write steps.{path[1]}.outputs.OUTPUT or steps.{path[1]}.outcome",
            scope.at(field),
            scope.source,
        )
        return False
    known = context.outputs[path[1]]
    if path[2] != "outputs" or len(path) == 3 or path[3] in known:
        return True
    context.report(
        "P202",
        f"the step {path[1]!r} has no output {path[3]!r}",
        f"declare it under its `outputs`.{nearest(path[3], known)} Known: {', '.join(known) or 'none'}",
        scope.at(field),
        scope.source,
    )
    return False


def _fixed_field(context: Context, path: Path, scope: ReadScope, field: str) -> bool:
    if path[1] in FIELDS[path[0]]:
        return True
    known = sorted(FIELDS[path[0]])
    context.report(
        "P204",
        f"{'.'.join(path[:2])} cannot be read here",
        f"read one of {', '.join(known)}.{nearest(path[1], known)}",
        scope.at(field),
        scope.source,
    )
    return False


def _own_name(context: Context, path: Path, scope: ReadScope, field: str) -> bool:
    root, name = path[:2]
    if f"{root}.{name}" in scope.own:
        return True
    known = sorted(key.partition(".")[2] for key in scope.own if key.startswith(root + "."))
    noun = {"item": "loop variable", "inputs": "input", "outputs": "output"}[root]
    context.report(
        "P205",
        f"this step has no {noun} {name!r}",
        f"known: {', '.join(known) or 'none'}.{nearest(name, known)}",
        scope.at(field),
        scope.source,
    )
    return False


_RULES: Final[Mapping[str, Rule]] = {
    "params": _parameter,
    "steps": _step,
    "run": _fixed_field,
    "attempt": _fixed_field,
    "item": _own_name,
    "inputs": _own_name,
    "outputs": _own_name,
}
"""The other roots may be read without limits."""
