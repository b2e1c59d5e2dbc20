"""Steps, tasks and hooks of an Argo template -> StepBuilders. Called by workflow for each DefinitionBuilder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.errors import Source
from penstock.expressions.parse import Binary, Call, Const, Expr, Name, Node, path_of, reference
from penstock.expressions.satisfy import never
from penstock.expressions.types import ANY
from penstock.formats.argo.read.arguments import CallArguments, given_of, inputs_of, whole_given
from penstock.formats.argo.read.builder import CallScope, DefinitionBuilder
from penstock.formats.argo.read.leaf import leaf_spec
from penstock.formats.argo.read.loops import KINDS, loop_of, named
from penstock.formats.argo.read.order import dag_edges, group_edges, pruned
from penstock.formats.argo.read.policy import NO_CACHE, cache_of, locks_of, retry_of, timeout_of
from penstock.formats.argo.read.steps import CallSite, LoopItems, StepBuilder
from penstock.formats.argo.read.template import TemplateSpec, legal, text_of
from penstock.formats.argo.read.values import TextScope, as_expr, condition, expression
from penstock.formats.argo.scope import calls_of
from penstock.formats.documents import part
from penstock.formats.values import frozen
from penstock.graph.model import (
    Edge,
    ForEach,
    Nested,
    Outcome,
)

RAN: Final = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED})
BAD: Final = frozenset({Outcome.FAILED, Outcome.ERRORED})
NEVER: Final = Binary("<", Call("size", (Name("params"),)), Const(0))
"""A condition that never holds, in a form that graph.check does not report."""
_ALWAYS: Final = Const(True)


# -- a whole frame ----------------------------------------------------------------------------------------------------


def build(builder: DefinitionBuilder) -> None:
    """The steps of a steps or dag template."""
    _collect(builder)
    sites = list(builder.sites.values())
    if builder.template.kind == "dag":
        sites = pruned(builder, sites)
        builder.sites = {site.name: site for site in sites}
    hooked: list[StepBuilder] = []
    for site in sites:
        loop, step_builder = _site(builder, site)
        builder.step_builders.append(step_builder)
        hooked += _hooks(builder, site, loop)
    if builder.template.kind == "dag":
        dag_edges(builder)
    else:
        group_edges(builder)
    builder.step_builders += hooked


def _collect(builder: DefinitionBuilder) -> None:
    """Every call by its name, with its template."""
    template, notes = builder.template, builder.context.notes
    _check_shape(builder)
    for number, (group, raw, path) in enumerate(calls_of(template.body, template.path)):
        name = text_of(raw.get("name"))
        if not name:
            notes.wrong(template.document, path, "P835", f"this {builder.word[:-1]} has no name", "give it one")
            continue
        if name in builder.sites:
            message = f"two {builder.word} of {template.name!r} are named {name[:60]!r}"
            notes.wrong(template.document, f"{path}.name", "P835", message, "rename one; outputs are read by name")
            continue
        at = f".{name}" if group is None else f"[{group}].{name}"
        callee = builder.context.callee(template, raw, path, name, at)
        if callee is None:
            continue
        own = legal(name, builder.taken)
        builder.taken.add(own)
        if own != name:
            notes.changed(template.document, f"{path}.name", f"{name[:60]!r} is called {own!r}")
        builder.sites[name] = CallSite(
            name, own, raw, path, callee, group, number, _tolerated(raw), any(raw.get(one) is not None for one in KINDS)
        )
        if builder.sites[name].tolerates:
            builder.tolerant[name] = builder.sites[name].tolerates
    if not builder.sites and not notes.problems:
        notes.wrong(
            template.document, template.path, "P835", f"the template {template.name!r} has no steps", "give it one"
        )


def _check_shape(builder: DefinitionBuilder) -> None:
    """Reports malformed groups and tasks; other code skips them."""
    template, notes = builder.template, builder.context.notes
    if template.kind == "dag":
        listed, path = part(template.body, "dag").get("tasks"), f"{template.path}.dag.tasks"
    else:
        listed, path = template.body.get("steps"), f"{template.path}.steps"
    if not isinstance(listed, list):
        notes.wrong(template.document, path, "P835", "this is not a list", "give a list")
        return
    for number, one in enumerate(listed):
        here = f"{path}[{number}]"
        if template.kind == "dag":
            if not isinstance(one, Mapping):
                notes.wrong(template.document, here, "P835", "this is not a task", "give it a name and a template")
            continue
        inner = one.get("steps") if isinstance(one, Mapping) else one
        if not isinstance(inner, list):
            fix = "steps are a list of groups, and a group is a list of steps that start together: begin the line with `- - name:`"
            notes.wrong(template.document, here, "P835", "this is not a group of steps", fix)
        elif not all(isinstance(step, Mapping) for step in inner):
            notes.wrong(
                template.document, here, "P835", "not every one of these is a step", "give a name and a template"
            )


def _tolerated(raw: Mapping[str, Any]) -> frozenset[Outcome]:
    given = part(raw, "continueOn")
    found = {Outcome.FAILED} if given.get("failed") is True else set()
    return frozenset(found | ({Outcome.ERRORED} if given.get("error") is True else set()))


# -- one step ---------------------------------------------------------------------------------------------------------


def _site(builder: DefinitionBuilder, site: CallSite) -> tuple[LoopItems | None, StepBuilder]:
    scope = CallScope(builder, site)
    found = loop_of(site.raw, scope, site.path)
    fields: dict[str, Any] = {"tolerates": site.tolerates}
    if found is not None:
        items, scope.loop = found
        scope.loop.items = items
        fields["each"] = ForEach(axes=({"item": items},))
    text = text_of(site.raw.get("when"))
    if text is not None and text.strip():
        when = condition(text, scope, f"{site.path}.when")
        if when is not None:
            fields["when"] = held(when, scope, f"{site.path}.when")
    if (
        site.group is not None
        and not site.template.composite
        and site.template.kind not in ("http", "suspend", "plugin")
    ):
        fields["group"] = f"{builder.template.name}[{site.group}]"
    given = given_of(site.raw.get("arguments"), scope, f"{site.path}.arguments")
    return scope.loop, drafted(builder, site, scope, given, fields)


def drafted(
    builder: DefinitionBuilder, site: CallSite, scope: CallScope, given: CallArguments, fields: dict[str, Any]
) -> StepBuilder:
    """The step of a call, without order, condition and group."""
    template, context = site.template, builder.context
    fields["source"] = _source(builder, site)
    inputs = inputs_of(template, given, scope, site.path)
    if template.composite:
        called = context.definition(template)
        fields |= _of_call(template, scope)
        step_builder = StepBuilder(site, inputs, Nested(name=called.name), fields)
        context.callers.append((scope, step_builder, called))
        give_names(step_builder, scope)
        return step_builder
    known = leaf_spec(template, scope, lambda: given.parameters(template, scope))
    step_builder = StepBuilder(site, inputs, known, {**known.fields, **fields})
    give_names(step_builder, scope)
    return step_builder


def give_names(step_builder: StepBuilder, scope: CallScope) -> None:
    """A loop whose step reads its own name has the names beside the items."""
    each, loop = step_builder.fields.get("each"), scope.loop
    if isinstance(each, ForEach) and loop is not None and loop.names_read and "name" not in each.axes[0]:
        names = named(loop.items, (scope.hooked or step_builder.site).name, scope, step_builder.site.path)
        step_builder.fields["each"] = ForEach(axes=({**each.axes[0], "name": names},))


def _source(builder: DefinitionBuilder, site: CallSite) -> Source:
    return builder.document.source(site.path)


class _CompositeScope(TextScope):
    """The scope of the fields of a composite template that apply to a whole call: time limit, locks."""

    def __init__(self, around: CallScope, template: TemplateSpec) -> None:
        self.around = around
        self.template = template
        self.notes = around.notes
        self.document = template.document

    def known(self) -> Mapping[str, Any]:
        return self.around.known()

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        if names[0] == "inputs" and len(names) > 2 and (names[1], ".".join(names[2:])) in self.template.input_names:
            return reference("inputs", self.template.input_names[names[1], ".".join(names[2:])])
        return self.around.look(names, typed=typed) if names[0] == "workflow" else None


def _of_call(template: TemplateSpec, around: CallScope) -> dict[str, Any]:
    """Fields of a composite template that apply to every call of it."""
    scope = _CompositeScope(around, template)
    context, body, path = around.builder.context, template.body, template.path
    given, at = body.get("retryStrategy"), f"{path}.retryStrategy"
    if given is None:
        given, at = context.root.spec.get("retryStrategy"), f"{context.root.path}.retryStrategy"
    found: dict[str, Any] = {
        "retry": retry_of(given, scope, at),
        "timeout": timeout_of(body, scope, path),
        "locks": locks_of(body.get("synchronization"), scope, f"{path}.synchronization", context.library),
        "cache": cache_of(body.get("memoize"), scope, f"{path}.memoize") if body.get("memoize") else NO_CACHE,
    }
    rest = {name: frozen(body[name]) for name in ("annotations", "metrics") if body.get(name) is not None}
    if rest:
        found["extra"] = {"argo": rest}
        for name in rest:
            context.notes.kept(template.document, f"{path}.{name}", "handed on as it is")
    return found


def held(when: Node, scope: CallScope, path: str) -> Expr | None:
    """A condition; None if it always holds."""
    if when == _ALWAYS:
        return None
    params = (
        {param.name: param.choices for param in scope.builder.context.params.values()} if scope.builder.root else {}
    )

    def choices(node: Node) -> tuple[Any, ...]:
        names = path_of(node)
        return params.get(names[1], ()) if names is not None and len(names) == 2 and names[0] == "params" else ()

    if never(when, lambda node: ANY, choices):
        return Expr.tree(NEVER)
    return as_expr(when, scope, path)


# -- hooks ------------------------------------------------------------------------------------------------------------


def _hooks(builder: DefinitionBuilder, site: CallSite, loop: LoopItems | None) -> Iterator[StepBuilder]:
    """The hook that runs when a step has ended. Its failure is ignored; dependents of the step wait for it."""
    for name, call, path in hooks_of(site.raw, site.path):
        callee = builder.context.callee(builder.template, call, path, site.name, f".{site.name}@{name}")
        if callee is None:
            continue
        own = legal(f"{site.step}-onExit" if name == "exit" else f"{site.step}-hooks-{name}", builder.taken)
        builder.taken.add(own)
        site.hooks.append(own)
        hook = CallSite(site.name, own, call, path, callee, None, site.number)
        scope = CallScope(builder, hook, loop, hooked=site)
        fields: dict[str, Any] = {"exempt": True, "tolerates": BAD}
        if site.looped:
            fields["each"] = builder.step_builders[-1].fields["each"]
            message = (
                "the hook of a loop runs for each item when all are over; outputs of the step are those of all items"
            )
            builder.context.notes.changed(builder.document, path, message)
        when = hook_condition(call, scope, path, name == "exit")
        if when is not None:
            fields["when"] = when
        step_builder = drafted(builder, hook, scope, _hook_arguments(builder, callee, call, scope, path), fields)
        step_builder.needs.append(Edge(site.step, RAN))
        yield step_builder


def hooks_of(raw: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """(name, what it calls, path); the old onExit is the hook `exit`."""
    named = text_of(raw.get("onExit"))
    hooks = part(raw, "hooks")
    if named and not isinstance(hooks.get("exit"), Mapping):
        yield "exit", {"template": named}, f"{path}.onExit"
    for name, hook in hooks.items():
        if isinstance(hook, Mapping):
            yield str(name), hook, f"{path}.hooks.{name}"


def _hook_arguments(
    builder: DefinitionBuilder, callee: TemplateSpec, call: Mapping[str, Any], scope: CallScope, path: str
) -> CallArguments:
    if path.endswith(".onExit"):
        return whole_given(builder, scope, callee)
    return given_of(call.get("arguments"), scope, f"{path}.arguments")


def hook_condition(call: Mapping[str, Any], scope: CallScope, path: str, exit: bool) -> Expr | None:
    """An expression is evaluated when the step has ended: once with the status while it ran, once with the final status."""
    text = text_of(call.get("expression"))
    here = f"{path}.expression"
    if not text or not text.strip():
        if not exit:
            scope.notes.wrong(
                scope.document, path, "P835", "a hook needs an expression", "name it `exit`, or say when it runs"
            )
        return None
    ended = expression(text, scope, here)
    if ended is None or exit:
        return None if ended is None else held(ended, scope, here)
    scope.status = Const("Running")
    running = expression(text, scope, here)
    scope.status = None
    scope.notes.changed(scope.document, path, "the hook runs when the step is over, not while it runs")
    if running is None:
        return None
    return held(_either(running, ended, scope), scope, here)


def _either(running: Node, ended: Node, scope: CallScope) -> Node:
    """`a || b`, without constant parts."""
    if never(running, lambda node: ANY, lambda node: ()):
        return ended
    if never(Binary("==", running, Const(False)), lambda node: ANY, lambda node: ()):
        return _ALWAYS
    return Binary("||", running, ended)
