"""Calls: what they name, and the steps or values that they become."""

from __future__ import annotations

import pytest

from penstock import ContainerJob, Workflow, WorkflowParam
from penstock.author.compiler.builtins import Builtins
from penstock.author.compiler.callees import Callees
from penstock.author.compiler.methods import Methods
from penstock.author.compiler.step_calls import StepCalls
from penstock.author.compiler.symbols import Static
from penstock.errors import AuthorError
from penstock.expressions.parse import Expr
from penstock.graph.model import ForEach
from tests.author.compiler.build import add, compiler, context, expr, inc, of_run, shown, with_literals


def test_callees_are_found_without_adding_steps() -> None:
    shared = context()
    callees = Callees(shared, with_literals(shared))
    assert callees.find(expr("inc")) is inc
    assert callees.find(expr("inc.after(x)")) is inc
    changed = callees.find(expr("inc.options(cpu=2)"))
    assert changed is not None and changed.given == {"cpu": 2}  # type: ignore[union-attr]
    assert [callees.find(expr(text)) for text in ("print", "nowhere", "inc.function", "'a'", "inc(1)")] == [None] * 5
    assert callees.any_called(expr("[f(1), {'k': inc(2)}]")) and not callees.any_called(expr("len(inc)"))
    assert callees.first_name(expr("[f(1), add(1, 2)]")) == "add" and callees.first_name(expr("f(1)")) == "body"
    assert shared.scopes.builder.steps == []
    for text, code in (("inc.options(cpux=1)", "P305"), ("inc.options(1)", "P311"), ("inc.options(**d)", "P312")):
        with pytest.raises(AuthorError, match=code):
            callees.find(expr(text))


def test_a_workflow_takes_no_options_at_its_call() -> None:
    shared = context()
    shared.scopes.bind("inner", Static(Workflow("inner", [ContainerJob("one", "i")])))
    with pytest.raises(AuthorError, match="takes no options here"):
        Callees(shared, with_literals(shared)).find(expr("inner.options(cpu=1)"))


def test_a_call_of_a_task_is_a_step() -> None:
    shared = context()
    steps = StepCalls(shared, with_literals(shared))
    shared.scopes.bind("x", of_run("x", "int"))
    assert shown(steps.call(expr("add(x, b=2)"), add)) == "steps.add.outputs.result"
    assert shown(steps.call(expr("add(1, 2)"), add)) == 'steps["add-2"].outputs.result'
    inputs = {given.name: given.value for given in shared.scopes.builder.steps[0].inputs}
    assert inputs == {"a": Expr.of("params.x"), "b": 2}
    for text, code in (("add(1)", "P309"), ("add(*x)", "P311"), ("add(**x)", "P311")):
        with pytest.raises(AuthorError, match=code):
            steps.call(expr(text), add)


def test_a_call_in_a_loop_is_a_list() -> None:
    shared = context()
    steps = StepCalls(shared, with_literals(shared))
    made = steps.call(expr("inc(1)"), inc.options(parallel=2), ForEach(axes=({"v": (1, 2)},)))
    assert str(made.type) == "list[int]"  # type: ignore[union-attr]
    each = shared.scopes.builder.steps[0].each
    assert each is not None and each.parallel == 2


def test_calls_of_jobs_and_workflows() -> None:
    shared = context()
    steps = StepCalls(shared, with_literals(shared))
    job = ContainerJob("job", "i", inputs=[WorkflowParam("n", int)], outputs=[WorkflowParam("rows", int)])
    assert shown(steps.call(expr("job(n=1)"), job)) == "steps.job.outputs.rows"
    for text in ("job()", "job(1)", "job(m=1)"):
        with pytest.raises(AuthorError, match="P309"):
            steps.call(expr(text), job)
    inner = Workflow("inner", [job(n=1)], params=[WorkflowParam("k", int, 3)], outputs={"rows": job.outputs["rows"]})
    assert shown(steps.call(expr("inner(k=2)"), inner)) == "steps.inner.outputs.rows"
    assert [one.name for one in shared.definitions.by_name()] == ["inner"]
    assert steps.call(expr("empty()"), Workflow("empty", [])) == Static(None)


def test_builtins_are_computed_or_have_an_expression() -> None:
    shared = context()
    expressions = with_literals(shared)
    builtins = Builtins(shared, expressions, Callees(shared, expressions))
    methods = Methods(shared, expressions)
    for name, type_ in (("x", "int"), ("xs", "list[int]"), ("s", "str")):
        shared.scopes.bind(name, of_run(name, type_))
    shows = {
        (sorted, "sorted([2, 1])"): "[1, 2]",
        (len, "len(xs)"): "size(params.xs)",
        (len, "len([x])"): "1",
        (range, "range(x)"): "range(params.x)",
        (str, "str(x)"): 'format(params.x, "")',
        (float, "float(x)"): "double(params.x)",
        (bool, "bool(x)"): "params.x != 0",
        (list, "list(xs)"): "params.xs",
        (max, "max(x, 2)"): "max(params.x, 2)",
        (max, "max(xs)"): "py_max(params.xs)",
        (min, "min(x, 2.5)"): "py_min([params.x, 2.5])",
        (sum, "sum(xs)"): "py_sum(params.xs)",
    }
    assert {key: shown(builtins.call(expr(key[1]), Static(key[0]))) for key in shows} == shows
    refused = ((sum, "sum(x)"), (max, "max(xs, key=abs)"), (print, "print(1)"), (None, "None(1)"))
    for function, text in refused:
        with pytest.raises(AuthorError):
            builtins.call(expr(text), Static(function))
    called = {"'a,b'.split(',')": '["a", "b"]', "s.startswith('a')": 'params.s.startsWith("a")'}
    called |= {"s.upper()": 'py_method(params.s, "upper")'}
    assert {text: shown(methods.call(expr(text), expr(text).func)) for text in called} == called
    for text in ("s.encode()", "xs.append(1)", "'a'.encode()"):
        with pytest.raises(AuthorError):
            methods.call(expr(text), expr(text).func)


def test_the_rule_for_calls_tells_steps_from_functions() -> None:
    made = compiler(x="int")
    assert shown(made.expressions.lower(expr("inc(len([x]))"))) == "steps.inc.outputs.result"
    for text, code in (
        ("inc.options(cpu=1)", "P311"),
        ("x(1)", "P311"),
        ("print(1)", "P313"),
        ("'a'.encode()", "P313"),
    ):
        with pytest.raises(AuthorError, match=code):
            made.expressions.lower(expr(text))
