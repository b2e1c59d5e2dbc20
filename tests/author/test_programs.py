"""Random programs: compiled and interpreted they give what Python gives; refused ones are refused with a line and a fix."""

from __future__ import annotations

import ast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import AuthorError
from tests.support.interpret import plain, run
from tests.support.source import module

INTS = ("x", "y", "z")
LISTS = ("xs", "ys")


@st.composite
def int_expr(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(
        st.sampled_from(
            ["name", "number", "inc", "add", "total", "plus", "len", "choice", "get"] if depth else ["name", "number"]
        )
    )
    inner = int_expr(depth - 1)
    match kind:
        case "name":
            return draw(st.sampled_from(INTS))
        case "number":
            return str(draw(st.integers(0, 4)))
        case "inc":
            return f"inc({draw(inner)})"
        case "add":
            return f"add({draw(inner)}, {draw(inner)})"
        case "total":
            return f"total({draw(list_expr(depth - 1))})"
        case "plus":
            return f"({draw(inner)} {draw(st.sampled_from('+-*'))} {draw(inner)})"
        case "len":
            return f"len({draw(st.sampled_from((*LISTS, 'd')))})"
        case "get":
            return f"d.get(str({draw(int_expr(0))}), {draw(int_expr(0))})"
        case _:
            return f"({draw(inner)} if {draw(condition(depth - 1))} else {draw(inner)})"


@st.composite
def list_expr(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(
        st.sampled_from(
            ["name", "upto", "each", "cross", "filter", "literal", "plain", "zip", "enumerate", "values"]
            if depth
            else ["name", "upto"]
        )
    )
    match kind:
        case "name":
            return draw(st.sampled_from(LISTS))
        case "upto":
            return f"upto({draw(int_expr(0))})"
        case "each":
            return f"[{draw(st.sampled_from(['inc(v)', 'add(v, x)', 'inc(add(v, y))', 'inc(v) if v > x else add(v, y)']))} for v in {draw(list_expr(depth - 1))}]"
        case "cross":
            return f"[add(v, w) for v in {draw(st.sampled_from(LISTS))} for w in [1, 2]]"
        case "filter":
            return f"[inc(v) for v in {draw(list_expr(depth - 1))} if v > {draw(int_expr(0))}]"
        case "zip":
            both = f"zip({draw(list_expr(depth - 1))}, {draw(list_expr(depth - 1))})"
            return f"[{draw(st.sampled_from(['add(v, w)', 'inc(v * w)', 'v - w']))} for v, w in {both}]"
        case "enumerate":
            start = draw(st.sampled_from(["", ", 1", ", x"]))
            return f"[{draw(st.sampled_from(['add(i, v)', 'i * v']))} for i, v in enumerate({draw(list_expr(depth - 1))}{start})]"
        case "values":
            return draw(
                st.sampled_from(
                    ["list(d.values())", "[inc(v) for v in d.values()]", "[v for k, v in d.items() if k != '1']"]
                )
            )
        case "plain":
            return f"[v + 1 for v in {draw(list_expr(depth - 1))}]"
        case _:
            return f"[{draw(int_expr(depth - 1))}, {draw(int_expr(depth - 1))}]"


@st.composite
def condition(draw: st.DrawFn, depth: int = 1) -> str:
    kind = draw(st.sampled_from(["compare", "even", "and", "or", "not", "list", "in"] if depth else ["compare"]))
    match kind:
        case "compare":
            return f"{draw(int_expr(depth))} {draw(st.sampled_from(['<', '<=', '>', '>=', '==', '!=']))} {draw(int_expr(0))}"
        case "even":
            return f"even({draw(int_expr(0))})"
        case "list":
            return draw(st.sampled_from(LISTS))
        case "in":
            return f"{draw(int_expr(0))} in {draw(st.sampled_from(LISTS))}"
        case "not":
            return f"not ({draw(condition(depth - 1))})"
        case _:
            return f"({draw(condition(depth - 1))} {kind} {draw(condition(depth - 1))})"


@st.composite
def block(draw: st.DrawFn, depth: int = 2) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(
            st.sampled_from(
                ["int", "int", "list", "if", "for", "while", "return", "append", "dict", "put", "over", "put each"]
                if depth
                else ["int", "list"]
            )
        )
        match kind:
            case "int":
                lines.append(f"{draw(st.sampled_from(INTS))} = {draw(int_expr())}")
            case "list":
                lines.append(f"{draw(st.sampled_from(LISTS))} = {draw(list_expr())}")
            case "if":
                lines += [f"if {draw(condition())}:", *_in(draw(block(depth - 1)))]
                if draw(st.booleans()):
                    lines += ["else:", *_in(draw(block(depth - 1)))]
            case "for":
                lines += ["for k in [1, 2]:", *_in(draw(rounds(depth - 1))), *draw(otherwise())]
            case "over":
                head = draw(
                    st.sampled_from(["v in xs", "i, v in enumerate(xs)", "v, w in zip(xs, ys)", "k, v in d.items()"])
                )
                lines += [f"for {head}:", *_in(draw(rounds(depth - 1))), *draw(otherwise())]
            case "while":
                n = f"n{depth}"
                body = [f"{n} = {n} + 1", *draw(rounds(depth - 1))]
                lines += [f"{n} = 0", f"while {n} < 2:", *_in(body), *draw(otherwise())]
            case "dict":
                lines.append(
                    f"d = {{str(v): {draw(st.sampled_from(['v', 'inc(v)', 'v * x']))} for v in {draw(list_expr(1))}}}"
                )
            case "put":
                lines.append(f"d[str({draw(int_expr(0))})] = {draw(int_expr(1))}")
            case "put each":
                lines += [
                    "e = {}",
                    f"for v in {draw(list_expr(1))}:",
                    f"    e[str(v)] = {draw(st.sampled_from(['inc(v)', 'v + x']))}",
                    "d = e",
                ]
            case "append":
                lines += [
                    "out = []",
                    f"for v in {draw(st.sampled_from(LISTS))}:",
                    *_in(["w = inc(v)", "out.append(add(w, x))"]),
                    "ys = out",
                ]
            case _:
                lines += [f"if {draw(condition())}:", f"    return {draw(int_expr())}"]
    return lines


@st.composite
def rounds(draw: st.DrawFn, depth: int) -> list[str]:
    """The body of a loop, which may end the round or the loop."""
    lines = draw(block(depth))
    for word in draw(st.lists(st.sampled_from(["break", "continue"]), max_size=2)):
        at = draw(st.integers(0, len(lines)))
        if at == len(lines) or not lines[at].startswith((" ", "else")):
            lines[at:at] = [f"if {draw(condition(0))}:", f"    {word}"]
    return lines


@st.composite
def otherwise(draw: st.DrawFn) -> list[str]:
    return ["else:", f"    {draw(st.sampled_from(INTS))} = {draw(int_expr(1))}"] if draw(st.booleans()) else []


def _in(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(block(), st.integers(0, 5), st.lists(st.integers(0, 3), max_size=3))
def test_random_programs_mean_the_same_compiled_and_plain(body: list[str], x: int, xs: list[int]) -> None:
    lines = [
        "@workflow(max_iterations=50)",
        "def flow(x: int, xs: list[int]):",
        "    y = 1",
        "    z = inc(x)",
        "    ys = [2, x]",
        "    d = {'1': x}",
        *_in(body),
        "    return [x, y, z, xs, ys, d]",
    ]
    source = "\n".join(lines) + "\n"
    flow = module(source).flow
    try:
        graph = flow.graph
    except AuthorError as error:
        # A return inside a loop and what would be too much to write out are refused, and rightly so.
        assert error.code in ("P311", "P312", "P316", "P317"), (source, error)
        assert error.problems[0].source.line > 1 and error.problems[0].fix
        return
    problems = [problem for problem in flow.check() if problem.severity == "error"]
    assert "P224" not in {problem.code for problem in flow.check()}, source
    if {problem.code for problem in problems} - {"P221", "P222"}:
        raise AssertionError((source, problems))
    if problems:
        return  # a constant condition that never holds: refused by check, not by the compiler
    assert run(graph, x=x, xs=xs).get("result") == plain(flow(x=x, xs=xs)), source


STATEMENTS = [
    "try:\n    pass\nexcept E:\n    pass",
    "with a as b:\n    pass",
    "def f(): pass",
    "class A: pass",
    "lambda: 1",
    "global x",
    "import os",
    "from os import path",
    "del x",
    "assert x",
    "raise E",
    "match x:\n    case 1: pass",
    "break",
    "continue",
    "x = {1, 2}",
    "x = {a for a in xs}",
    "x = {a: 1 for a in xs}",
    "x = (a for a in xs)",
    "(q := 1)",
    "print(x)",
    "x.y = 1",
    "x[0] = 1",
    "yield 1",
    "return x",
    "x = inc",
    "x = inc()",
    "x = inc(1, 2, 3)",
    "x = inc(*xs)",
    "x = inc(**d)",
    "x = add(a=1, c=2)",
    "a, *b = xs",
    "x = xs[1:]",
    "x = xs[::y]",
    "x = nowhere",
    "x = y.z.w",
    "x = 1 // y",
    "x = y % 2",
    "x = y ** 2",
    "x = ~y",
    "x = y @ y",
    "x = y << 1",
    "x = f'{y!r}'",
    "x = f'{y:{z}}'",
    "x = y and z",
    "x = b'bytes'",
    "x = ...",
    "x = 1j",
    "for v in x:\n    pass",
    "for v in 5:\n    inc(v)",
    "for v in xs:\n    x = add(x, v)",
    "while True:\n    inc(x)",
    "while x < 3:\n    inc(x)",
    "while x:\n    x = inc(x)\nelse:\n    pass",
    "for v in xs:\n    inc(v)\nelse:\n    pass",
    "x = [inc(v) for v in xs if even(v)]",
    "x = sum(xs)",
    "x = sorted(xs)",
    "x = max(xs)",
    "x = open('f')",
    "x = inc.options(nope=1)(2)",
    "x = inc.options(cpu=y)(2)",
    "x = inc.options(1)(2)",
    "x = inc.options(cpu=1)",
    "x = 10 ** 10 ** 10",
    "x = 'a' * 10 ** 9",
    "x = [0] * 10 ** 9",
    "x = 1 / 0",
    "x = [1][5]",
    "x = {'a': 1}['b']",
    "x = 'a' + 1",
    "x = y.append(1)",
    "x = str(y).upper()",
    "if x > 1:\n    q = 1\nx = q",
    "x = x.real",
    "x = inc(inc)",
    "x = inc(object)",
    "x = zip([1], [1, 2])",
    "x = [add(a, b) for a, b in zip([1], [1, 2])]",
    "async def f(): pass",
    "x = await y",
    "x: int",
    "x = y if z else inc",
    "x += 'a'",
    "pass",
    "'words'",
    "x = flow(x)",
    "x = int('a')",
    "x = range(10 ** 12)",
    "for v in range(10 ** 12):\n    x = add(x, v)",
    "x = [v for v in range(10 ** 12)]",
]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4))
def test_whatever_is_written_ends_in_a_graph_or_in_a_line_with_a_fix(statements: list[str]) -> None:
    body = "\n".join("    " + line for statement in statements for line in statement.splitlines())
    source = f"@workflow\ndef flow(x: int, y: int, z: int, xs: list[int], d: dict[str, int]):\n{body}\n    return x\n"
    try:
        ast.parse(source)
        made = module(source)
    except SyntaxError:
        return
    try:
        made.flow.check()
        made.flow.explain()
    except AuthorError as error:
        problem = error.problems[0]
        assert problem.fix and problem.source is not None and problem.source.line > 0
        assert problem.excerpt.strip(), (source, problem)


def test_every_statement_of_the_list_alone() -> None:
    for statement in STATEMENTS:
        test_whatever_is_written_ends_in_a_graph_or_in_a_line_with_a_fix.hypothesis.inner_test([statement])  # type: ignore[attr-defined]
