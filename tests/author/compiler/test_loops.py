"""Assignment targets, axes, bodies and loops."""

from __future__ import annotations

import ast

import pytest

from penstock.author.compiler.axes import Axes, loop_variable
from penstock.author.compiler.bindings import Bindings
from penstock.author.compiler.bodies import Bodies, BodyResult
from penstock.author.compiler.callees import Callees
from penstock.author.compiler.symbols import Seq, Static
from penstock.errors import AuthorError
from penstock.graph.model import ForEach
from tests.author.compiler.build import block, compiler, context, expr, of_run, shown, with_literals


def test_targets_are_bound_part_by_part() -> None:
    shared = context()
    bindings = Bindings(shared)
    bindings.assign(expr("a, (b, c)"), Seq((of_run("x"), Static([1, 2]))))
    assert {name: shown(found) for name, found in shared.scopes.variables.items()} == {
        "a": "params.x",
        "b": "1",
        "c": "2",
    }
    bindings.assign(expr("a, b"), of_run("p", "tuple[int, str]"))
    assert shown(shared.scopes.find("b")) == "params.p[1]"
    wrong = [
        ("a, b", Static([1])),
        ("a, b", Static(5)),
        ("a, b", of_run("x", "int")),
        ("a[0]", Static(1)),
        ("a.b", Static(1)),
    ]
    for target, symbol in wrong:
        with pytest.raises(AuthorError):
            bindings.assign(expr(target), symbol)
    with pytest.raises(AuthorError, match="name each part"):
        bindings.assign(expr("(a, *b)"), Static([1, 2]))


def test_lists_that_have_two_names_are_not_changed() -> None:
    shared = context()
    bindings = Bindings(shared)
    symbol = Static([])
    shared.scopes.bind("a", symbol)
    assert bindings.is_changeable("a") and bindings.is_empty_list("a") and not bindings.is_changeable("b")
    bindings.refuse_alias(expr("a"), "a")
    shared.scopes.bind("b", symbol)
    with pytest.raises(AuthorError, match="are one list"):
        bindings.refuse_alias(expr("a"), "a")


def axes() -> tuple[Axes, object]:
    shared = context()
    expressions = with_literals(shared)
    shared.scopes.bind("xs", of_run("xs", "list[int]"))
    return Axes(shared, expressions, Callees(shared, expressions), Bindings(shared)), shared.scopes


def test_axes_bind_their_variables_to_items() -> None:
    found, scopes = axes()
    assert found.axis(expr("v"), expr("[1, 2]")) == {"v": (1, 2)}
    assert found.axis(expr("a, b"), expr("zip(xs, xs, strict=True)")).keys() == {"a", "b"}
    assert found.axis(expr("i, b"), expr("enumerate([5, 6])"))["b"] == (5, 6)
    assert shown(scopes.find("b")) == "item.b"  # type: ignore[attr-defined]
    assert loop_variable(expr("v")) == "v"
    for iterable in ("5", "zip([1], [1, 2], strict=True)", "enumerate(5)", "nowhere"):
        with pytest.raises(AuthorError, match="P312"):
            found.axis(expr("a, b") if "(" in iterable else expr("v"), expr(iterable))


def test_lists_of_different_lengths_are_cut_and_equal_ones_are_not() -> None:
    found, scopes = axes()
    scopes.bind("ys", of_run("ys", "list[int]"))  # type: ignore[attr-defined]
    whole = {"a": "params.xs", "b": "params.xs"}
    assert {name: str(value) for name, value in found.axis(expr("a, b"), expr("zip(xs, xs)")).items()} == whole
    assert found.axis(expr("a, b"), expr("zip([1, 2], [3])")) == {"a": (1,), "b": (3,)}
    cut = found.axis(expr("a, b"), expr("zip(xs, ys)"))
    assert {name: str(value) for name, value in cut.items()} == {
        name: f"slice(params.{of}, 0, min(size(params.xs), size(params.ys)))" for name, of in (("a", "xs"), ("b", "ys"))
    }


def test_elements_are_known_or_not_or_too_many() -> None:
    found, _ = axes()
    assert found.elements(expr("x"), Static("ab")) == [Static("a"), Static("b")]
    assert found.elements(expr("x"), of_run("xs")) is None
    with pytest.raises(AuthorError, match="P316"):
        found.elements(expr("x"), Static(range(20_000)))


def test_a_body_is_a_nested_workflow_and_one_step() -> None:
    shared = context()
    shared.scopes.bind("k", of_run("k", "int"))

    def work() -> dict[str, BodyResult]:
        found = shared.scopes.find("k")
        assert found is not None
        return {"result": BodyResult(found, expr("k"))}

    made = Bodies(shared, with_literals(shared)).call(expr("k"), "each-y", work, each=ForEach(axes=({"v": (1,)},)))
    assert shown(made["result"]) == 'steps["each-y"].outputs.result'
    (step,), (definition,) = shared.scopes.builder.steps, shared.definitions.by_name()
    assert (step.action.name, [given.name for given in step.inputs]) == (definition.name, ["k"])  # type: ignore[union-attr]
    assert str(made["result"].type) == "list[int]"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "steps", "called"),
    [
        ("y = [inc(v) for v in xs]", ["inc"], []),
        ("y = [inc(add(v, x)) for v in xs]", ["each-y"], ["flow-each-y"]),
        ("y = [v + 1 for v in xs if v]", [], []),
        ("y = [k * 2 for k in [1, 2]]", [], []),
        ("for v in xs:\n    inc(v)", ["inc"], []),
        ("for v in xs:\n    a = inc(v)\n    add(a, x)", ["for-v"], ["flow-for-v"]),
        ("out = []\nfor v in xs:\n    out.append(inc(v))", ["inc"], []),
        ("for k in [1, 2]:\n    x = add(x, k)", ["add", "add-2"], []),
        ("while x < 5:\n    x = inc(x)", ["while-x"], ["flow-while-x"]),
        ("if x > 1:\n    inc(x)\nelse:\n    add(x, 1)", ["inc", "add"], []),
        ("x += inc(x)", ["inc"], []),
    ],
)
def test_statements_become_steps(text: str, steps: list[str], called: list[str]) -> None:
    made = compiler(x="int", xs="list[int]")
    assert made.statements.block(block(text), {"y", "out"}) is None
    assert [step.name for step in made.context.scopes.builder.steps] == steps
    assert [one.name for one in made.context.definitions.by_name()] == called


def test_a_block_returns_what_its_branches_return() -> None:
    made = compiler(x="int")
    body = ast.parse("def f():\n    if x > 1:\n        return inc(x)\n    return 0").body[0].body  # type: ignore[attr-defined]
    assert shown(made.statements.block(body, set())) == "params.x > 1 ? steps.inc.outputs.result : 0"


def test_a_carried_value_may_be_called_proceed() -> None:
    made = compiler(x="int")
    made.statements.block(block("proceed = x\nwhile inc(proceed) < 3:\n    proceed = inc(proceed)"), {"proceed"})
    loop = made.context.scopes.builder.steps[-1].loop
    assert loop is not None
    assert (loop.condition.text, loop.carry) == ("inputs.proceed_", {"proceed": "proceed", "proceed_": "proceed_"})


def test_a_rule_can_be_added_for_a_statement() -> None:
    made = compiler()
    seen: list[set[str]] = []
    with pytest.raises(AuthorError, match="del has no meaning"):
        made.statements.statement(block("del x")[0], set())
    made.statements.add({ast.Delete: lambda statement, live: seen.append(live)})
    made.statements.statement(block("del x")[0], {"y"})
    assert seen == [{"y"}]
