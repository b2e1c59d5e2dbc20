"""Literals that mean something in the language of a target: every writer writes them so that they are read back as they were, or refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.expressions.evaluate import evaluate, resolve
from penstock.expressions.parse import Binary, Const, Expr, reference
from penstock.expressions.template import Template
from penstock.expressions.types import STR
from penstock.formats import registry
from penstock.formats.documents import Library, read_text
from penstock.formats.yaml_writer import dump_all
from penstock.graph.model import MISSING, Container, ForEach, Input, Parameter, Part, Pod, Script, Step, Workflow
from penstock.plan.expand import each_item

TARGETS = ("argo", "tekton", "jobset", "job")
HOSTILE = (
    "{{x}}", "{{=1}}", "{{inputs.parameters.x}}", "{{workflow.name}}", "{{=", "}}", "{{", "{{'{{'}}", "{{=`x`}}", "${{ x }}",
    "$(params.x)", "$(params.p)", "$$(x)", "$$(params.x)", "$(X)", "$$(X)", "$(HOME)", "$(Y)", "$$", "$", "$(", "$)", "(params.p)",
    "$(params['p'])", '$(params["p"])', "$(params.p[0])", "$(params.p[*])", "$(context.taskRun.name)", "$(workspaces.w.path)",
    "$(workspaces.penstock-empty.path)", "$(results.r.path)", "$(tasks.a.results.r)", "$(steps.a.results.r)", "$(step.results.r.path)",
    "$(PENSTOCK_REPLICA)", "$(params.", "params.p)", "$(cat x)", "`x`", "${X}", "\\", "\\\\", "\\n", "\n", "\n\n", "\t", " ", "  x", "#", ": ",
    "- ", "'", '"', "'''", "%", "&a", "*a", "!!str", "|", ">", "yes", "no", "null", "~", "1e3", "0x10", "010", "1_000", "1.50", ".inf",
    "2001-01-01", "12:30:00", "<<", "=", "é", "日本", "\u2028", "\x85", "\x7f", "\ufeff", "🙂", "a", "",
)  # fmt: skip
texts = st.lists(
    st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=4), max_size=5
).map("".join)


def back(workflow: Workflow, target: str) -> Workflow | None:
    """Written, and read back. None if the writer refuses, with a code."""
    try:
        written = registry.write(workflow, target)
    except UserError as error:
        assert all(problem.code.startswith("P8") and problem.fix for problem in error.problems)
        return None
    library = Library(tuple(read_text(dump_all(written.documents), "w.yaml")))
    return registry.read(library, registry.root(library, None, "w.yaml")).workflow


def program(workflow: Workflow) -> Any:
    """What the container of the only step gets; of a loop, for each item."""
    (step,) = workflow.steps
    return _program(
        workflow, step, {"params": {p.name: p.default for p in workflow.params if p.default is not MISSING}}
    )


def _program(workflow: Workflow, step: Step, scope: dict[str, Any]) -> Any:
    if step.each is not None and "item" not in scope:
        return [_program(workflow, step, {**scope, "item": one}) for one in each_item(step.each.axes, scope)]
    given = {one.name: resolve(one.value, scope) for one in step.inputs}
    if step.action.kind == "nested":
        (inner,) = [one for one in workflow.definitions if one.name == step.action.name]
        (below,) = inner.steps
        return _program(workflow, below, {"params": {p.name: given.get(p.name, p.default) for p in inner.params}})
    scope = {**scope, "inputs": given}
    action: Any = step.action
    if isinstance(action, Pod):
        (action,) = action.parts
    source = getattr(action, "source", None)
    words = (*action.command, *getattr(action, "args", ())) if source is None else (*action.command, "-c", source)
    env = {name: value for name, value in resolve(dict(action.env), scope).items() if name in ("X", "Y")}
    return {"words": resolve(words, scope), "env": env}


def same(workflow: Workflow, target: str) -> bool:
    """Is it read back as it was? False if it is refused."""
    found = back(workflow, target)
    if found is None:
        return False
    assert program(found) == program(workflow)
    return True


def may_be_refused(target: str, *texts: str) -> bool:
    """What the target has no escape for."""
    marks = {"tekton": "$(steps.", "argo": "{{"}
    return target in marks and any(marks[target] in text for text in texts)


def alone(action: Any, inputs: tuple[Input, ...] = (), params: tuple[Parameter, ...] = ()) -> Workflow:
    return Workflow(name="w", params=params, steps=(Step(name="a", action=action, inputs=inputs),))


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=60)
@given(words=st.lists(texts, min_size=1, max_size=3), x=texts, y=texts)
def test_literals_in_commands_and_the_environment(target: str, words: list[str], x: str, y: str) -> None:
    action = Container(image="i", command=("c",), args=tuple(words), env={"X": x, "Y": y})
    refused = not same(alone(action), target)
    assert not refused or may_be_refused(target, *words, x, y)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=60)
@given(source=texts)
def test_literals_in_scripts(target: str, source: str) -> None:
    action = Script(image="i", command=("/bin/sh", "-e"), source=f"echo {source}\n")
    refused = not same(alone(action), target)
    assert not refused or may_be_refused(target, source)


@pytest.mark.parametrize("target", ["argo", "tekton"])
@settings(max_examples=60)
@given(before=texts, value=texts, after=texts)
def test_literals_around_values_and_in_them(target: str, before: str, value: str, after: str) -> None:
    """The value of an input, in the middle of a script."""
    parts = tuple(one for one in (f"echo {before}", Expr.of("inputs.p"), after) if one != "")
    action = Script(image="i", command=("/bin/sh", "-e"), source=Template(parts))
    refused = not same(alone(action, (Input(name="p", value=value, type=STR),)), target)
    assert not refused or may_be_refused(target, before, value, after)


@pytest.mark.parametrize("target", ["argo", "tekton"])
@settings(max_examples=60)
@given(value=texts)
def test_literals_as_defaults_of_parameters(target: str, value: str) -> None:
    """Or they are refused."""
    action = Script(image="i", command=("/bin/sh", "-e"), source=Template(("echo ", Expr.of("inputs.p"))))
    given_ = (Input(name="p", value=Expr.of("params.q"), type=STR),)
    refused = not same(alone(action, given_, (Parameter(name="q", type=STR, default=value),)), target)
    assert not refused or may_be_refused(target, value) or (target == "tekton" and "$(" in value)


@pytest.mark.parametrize("target", ["argo", "tekton"])
@settings(max_examples=60)
@given(items=st.lists(texts, min_size=1, max_size=4, unique=True), more=st.lists(texts, max_size=2), before=texts)
def test_literals_as_items_of_loops(target: str, items: list[str], more: list[str], before: str) -> None:
    """One axis, two, and two that advance together."""
    together = {"i": tuple(items), "j": tuple(reversed(items))}
    crossed = ({"i": tuple(items)}, {"j": tuple(more)}) if more else (together,)
    for axes in (({"i": tuple(items)},), (together,), crossed):
        args = tuple(Template((f"{before}=", Expr.of(f"item.{name}"))) for axis in axes for name in axis)
        step = Step(name="a", action=Container(image="i", command=("c",), args=args), each=ForEach(axes=axes))
        refused = not same(Workflow(name="w", steps=(step,)), target)
        assert not refused or may_be_refused(target, *items, *more, before)


@pytest.mark.parametrize("target", ["argo", "tekton"])
@pytest.mark.parametrize("text", HOSTILE)
def test_each_literal_as_an_item(target: str, text: str) -> None:
    action = Container(image="i", command=("c", Expr.of("item.i")))
    flow = Workflow(name="w", steps=(Step(name="a", action=action, each=ForEach(axes=({"i": ("first", text)},))),))
    assert same(flow, target) or may_be_refused(target, text)


@pytest.mark.parametrize("target", ["argo", "tekton"])
@settings(max_examples=100)
@given(op=st.sampled_from(["==", "!="]), text=texts, value=texts)
def test_literals_in_conditions(target: str, op: str, text: str, value: str) -> None:
    """They hold for the same values as before, or are refused."""
    when = Expr.tree(Binary(op, reference("params", "q"), Const(text)))
    step = Step(name="a", action=Container(image="i", command=("c",)), when=when)
    flow = Workflow(name="w", params=(Parameter(name="q", type=STR, default=value),), steps=(step,))
    found = back(flow, target)
    if found is None:
        assert may_be_refused(target, text, value) or "$(" in text + value
        return
    read = found.steps[0].when
    assert read is not None
    for given_ in (value, text, f"{text}x", ""):
        scope = {"params": {"q": given_}}
        assert evaluate(read, scope) is evaluate(when, scope), (read.text, given_)


def test_a_literal_variable_of_tekton_survives_a_command() -> None:
    """`$(params.p)` in a command, in a task that has a parameter p."""
    words = ("echo", "$(params.p)", Template(("$(params.p)=", Expr.of("inputs.p"))))
    workflow = alone(Container(image="i", command=words), (Input(name="p", value="v", type=STR),))
    found = back(workflow, "tekton")
    assert found is not None and program(found)["words"] == ["echo", "$(params.p)", "$(params.p)=v"]


def test_what_earlier_steps_of_a_pod_gave_stays_a_variable() -> None:
    parts = (
        Part(name="a", image="i", command=("c",), results={"r": "/tekton/steps/step-a/results/r"}),
        Part(name="b", image="i", command=("c", "$(steps.a.results.r) $(params.p)")),
    )
    found = back(alone(Pod(parts=parts)), "tekton")
    assert found is not None and isinstance(found.steps[0].action, Pod)
    assert found.steps[0].action.parts[1].command == ("c", "$(steps.a.results.r) $(params.p)")
