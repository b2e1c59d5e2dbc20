"""Scopes: variables, guards, and the workflow being built."""

from __future__ import annotations

import pytest

from penstock.author.compiler.definitions import CalledWorkflows
from penstock.author.compiler.refusals import Refusals
from penstock.author.compiler.scope import ScopeStack, WorkflowBuilder
from penstock.author.compiler.symbols import Dynamic, Seq, Static
from penstock.errors import AuthorError
from penstock.expressions.parse import Name
from penstock.expressions.types import INT
from penstock.graph.model import Step, Suspend, Workflow
from tests.author.compiler.build import block, expr, of_run, shown


def step(name: str) -> Step:
    return Step(name=name, action=Suspend())


def stack(**globals: object) -> ScopeStack:
    return ScopeStack(Refusals("flow.py", {}), globals)


def test_names_of_steps_and_parameters_are_given_out_once() -> None:
    builder = WorkflowBuilder()
    for expected in ("train", "train-2", "train-3"):
        name = builder.free_name("train")
        assert name == expected
        builder.add(step(name))
    builder.reserve("clean")
    assert builder.free_name("clean") == "clean-2"
    assert [shown(builder.parameter("x", 1, INT)) for _ in range(2)] == ["params.x", "params.x_2"]
    assert list(builder.params) == list(builder.inputs) == ["x", "x_2"]


def test_names_are_variables_then_globals_then_builtins() -> None:
    scopes = stack(inc=1, x=2)
    scopes.bind("x", Static(3))
    assert scopes.look_up(expr("x")) == Static(3)
    assert scopes.look_up(expr("inc")) == Static(1)
    assert scopes.look_up(expr("len")) == Static(len)
    scopes.declare_local(["inc"])
    for name, message in (("inc", "read before it is assigned"), ("nowhere", "is not defined")):
        with pytest.raises(AuthorError, match=message):
            scopes.look_up(expr(name))


def test_a_body_gets_what_it_reads_as_parameters() -> None:
    scopes = stack()
    scopes.bind("k", of_run("k", "int"))
    scopes.bind("pair", Seq((of_run("a"), Static(1))))
    scopes.bind("n", Static(5))
    with scopes.body() as inner:
        assert scopes.find("n") == Static(5)
        assert scopes.find("k") == Dynamic(of_run("k").node, INT)
        assert scopes.find("pair") == Seq((of_run("pair_0"), Static(1)))
        with scopes.body() as innermost:
            scopes.find("k")
    assert list(inner.inputs) == ["k", "pair_0"] and list(innermost.inputs) == ["k"]
    assert inner.inputs["pair_0"].value.text == "params.a"
    assert list(scopes.variables) == ["k", "pair", "n"]


def test_steps_run_only_where_their_statement_runs() -> None:
    scopes = stack()
    with scopes.guarded(Name("a")):
        scopes.emit(step("one"))
        with scopes.guarded(Name("b")):
            scopes.emit(step("two"))
    scopes.emit(step("three"))
    assert [one.when.text if one.when else "" for one in scopes.builder.steps] == ["a", "a && b", ""]


def test_what_is_bound_for_a_while_is_forgotten() -> None:
    scopes = stack()
    scopes.bind("x", Static(1))
    with scopes.shadowing():
        scopes.bind("x", Static(2))
    assert scopes.find("x") == Static(1)
    with scopes.body():
        scopes.bind("y", Static(3))
        with scopes.outside():
            assert scopes.find("y") is None
            scopes.bind("x", Static(4))
        assert (scopes.find("x"), scopes.find("y")) == (Static(1), Static(3))
    before = scopes.replace_variables({"z": Static(1)})
    assert list(before) == ["x"] and list(scopes.variables) == ["z"]


def test_aliases() -> None:
    scopes = stack()
    symbol = Static([1])
    scopes.bind("a", symbol)
    assert scopes.alias("a") is None
    scopes.bind("b", symbol)
    assert scopes.alias("a") == "b"


def test_each_name_of_a_called_workflow_has_one_meaning() -> None:
    called = CalledWorkflows(Refusals("flow.py", {}), "flow")
    where = block("x")[0]
    called.define(where, Workflow(name="inner"))
    called.define(where, Workflow(name="inner"))
    with pytest.raises(AuthorError, match="P210"):
        called.define(where, Workflow(name="inner", steps=(step("a"),)))
    before = called.snapshot()
    assert called.add_body("each-x", Workflow(name="")) == "flow-each-x"
    assert called.add_body("each-x", Workflow(name="")) == "flow-each-x"
    assert called.add_body("each-x", Workflow(name="", steps=(step("a"),))) == "flow-each-x-2"
    assert [one.name for one in called.by_name()] == ["flow-each-x", "flow-each-x-2", "inner"]
    called.restore(before)
    assert [one.name for one in called.by_name()] == ["inner"]
