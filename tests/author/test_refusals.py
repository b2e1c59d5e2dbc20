"""Python without a meaning is refused at its place, and the refusal says what to write instead."""

from __future__ import annotations

import pytest

from penstock.errors import AuthorError
from tests.support.source import module

REFUSED = [
    # body, what the caret points at, code, part of the fix
    ("try:\n    inc(x)\nexcept ValueError:\n    pass", "try", "P311", "retry="),
    ("with open('f') as f:\n    inc(x)", "with", "P311", "inside a @task"),
    ("def helper(): pass", "def", "P311", "top of the file"),
    ("y = lambda: 1", "lambda", "P311", "@task"),
    ("import os", "import", "P311", "top of the file"),
    ("y = {v for v in xs}", "{v", "P311", "list comprehension"),
    ("y = {v: 1 for v in xs}", "v: 1", "P311", "str(…)"),
    ("y = (v for v in xs)", "(v", "P311", "[ … ]"),
    ("if (y := inc(x)) > 1:\n    inc(y)", "y :=", "P311", "line of its own"),
    ("print(x)", "print", "P313", "penstock logs shows what tasks print"),
    ("y = x | 1", "x |", "P311", "inside a @task"),
    ("y = 1 << 100000", "1 <<", "P311", "inside a @task"),
    ("y = helper(x)", "helper", "P313", "decorate it with @task"),
    ("n = None\ny = n(1)", "n(1)", "P313", "inside a @task"),
    ("y = [add(i, v) for i, v in enumerate(5)]", "5)", "P312", "loop over a list"),
    ("y = [x, 1]['a':]", "[x, 1]", "P312", "fix the"),
    ("y = nowhere(x)", "nowhere", "P312", "spelling"),
    ("y = inc(z)\nz = 1", "z)", "P312", "assign 'z' first"),
    ("if x > 1:\n    y = 1\ninc(y)", "y)", "P312", "before the if"),
    ("y = inc()", "inc()", "P309", "inc(x: int)"),
    ("y = inc(1, 2)", "inc(1", "P309", "inc(x: int)"),
    ("y = add(a=1, c=2)", "add(", "P309", "add(a: int, b: int)"),
    ("y = inc(*xs)", "*xs", "P311", "by name"),
    ("y = s % x", "s %", "P311", "f-string"),
    ("y = s.encode()", "s.encode", "P311", "inside a @task"),
    ("xs.extend([1])", "xs.extend", "P311", "xs + ys"),
    ("y = xs[0]\ny.append(1)", "y.append", "P311", "copy it first"),
    ("y = [xs]\nxs.append(1)", "xs.append", "P311", "list of its own"),
    ("y = x.real", "x.real", "P311", "@task"),
    ("y = sorted(xs, key=str)", "sorted(", "P311", "inside a @task"),
    ("y = any(even(v) for v in xs)", "(even", "P311", "run them all"),
    ("x[0] = 1", "x[0]", "P312", "list or dict first"),
    ("a, *b = xs", "*b", "P311", "name each part"),
    ("for v in xs:\n    y = add(x, v)\ninc(y)", "for", "P312", "before the loop"),
    ("while x < 3:\n    inc(x)", "x <", "P317", "change a value"),
    ("for v in xs:\n    return inc(v)", "return", "P311", "after the loop"),
    ("y = [inc(v) for v in xs if even(v)]", "even(", "P311", "call it first"),
    ("y = inc(inc)", "inc)", "P307", "inside a @task"),
    ("y = inc.options(cpux=1)(x)", "inc.options", "P305", 'Did you mean "cpu"'),
    ("y = inc.options(cpu=x)(1)", "x)", "P311", "constants"),
    ("for v in range(20_000):\n    x = add(x, v)", "for", "P316", "while loop"),
    ("a, b = inc(x)", "a, b", "P312", "tuple"),
    ("a, b, c = pair(x)", "a, b", "P312", "equally many"),
    ("y = flow(x, xs, s)", "flow(", "P314", "while loop"),
    ("y = [1, 2][5]", "[1, 2]", "P312", "fix the"),
    ("y = x + s", "x + s", "P311", "@task"),
    ("a = []\nb = a\na.append(inc(x))", "a.append", "P311", "list of its own"),
    ("y = [*xs, 4]", "*xs", "P311", "write xs + [4]"),
    ("y = (1, 2, *xs, *xs, inc(x))", "*xs", "P311", "write [1, 2] + xs + xs + [inc(x)]"),
    ("y = [*xs]", "*xs", "P311", "write list(xs)"),
    ("y = {inc(x): 1}", "inc(x)", "P311", "out[k] = v"),
    ("y = map(inc, xs)", "map(", "P313", "[f(x) for x in xs]"),
    ("y = filter(even, xs)", "filter(", "P313", "[x for x in xs if …]"),
    ("y = pow(x, 2)", "pow(", "P313", "x ** y"),
    ("y = divmod(x, 2)", "divmod(", "P313", "x // y and x % y"),
    ("for v in xs:\n    pass", "for", "P311", "call a task in it"),
    ("ys = xs\nxs += [inc(x)]", "xs +=", "P311", "list of its own"),
]


@pytest.mark.parametrize(("body", "at", "code", "fix"), REFUSED, ids=[body.splitlines()[0] for body, *_ in REFUSED])
def test_it_is_refused_at_its_place_with_a_way_out(body: str, at: str, code: str, fix: str) -> None:
    indented = "\n".join("    " + line for line in body.splitlines())
    flow = module(f"def helper(x): return x\n\n@workflow\ndef flow(x: int, xs: list[int], s: str):\n{indented}\n").flow
    with pytest.raises(AuthorError) as refused:
        flow.graph
    problem = refused.value.problems[0]
    assert problem.code == code
    assert fix in problem.fix, problem.fix
    assert problem.source is not None
    assert problem.excerpt[problem.source.column - 1 :].startswith(at), (problem.excerpt, problem.source)


def test_a_workflow_without_source_says_so() -> None:
    namespace: dict[str, object] = {}
    exec("from penstock import workflow\n@workflow\ndef flow(): pass\n", namespace)
    with pytest.raises(AuthorError, match="P315"):
        namespace["flow"].graph


def test_a_default_that_no_document_can_hold_is_refused() -> None:
    flow = module("@workflow\ndef flow(x: int = object()): inc(1)\n").flow
    with pytest.raises(AuthorError, match="P307"):
        flow.graph


def test_star_parameters_are_refused() -> None:
    for source in ("@workflow\ndef flow(*xs): inc(1)\n", "@workflow\ndef flow(**xs): inc(1)\n"):
        with pytest.raises(AuthorError, match="P311"):
            module(source).flow.graph
    for source in (
        "@task\ndef f(*xs): pass\n",
        "@task\ndef f(**xs): pass\n",
        "@task(cpu='x')\ndef f(): pass\n",
        "@task(cpu=-1)\ndef f(): pass\n",
    ):
        with pytest.raises(AuthorError):
            module(source)


def test_what_nests_without_end_is_refused_and_not_a_crash() -> None:
    chain = (
        "    if x == 0:\n        y = inc(0)\n"
        + "".join(f"    elif x == {i}:\n        y = inc({i})\n" for i in range(1, 150))
        + "    else:\n        y = 0\n"
    )
    with pytest.raises(AuthorError, match="P316"):
        module(f"@workflow\ndef flow(x: int):\n{chain}    return y\n").flow.graph
    with pytest.raises(AuthorError, match="P316"):
        module(
            "@workflow\ndef flow(x: int):\n    for i in range(400):\n        x = x + inc(i)\n    return x\n"
        ).flow.graph
