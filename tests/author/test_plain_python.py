"""Python that just works: what a workflow gives when it runs is what its function gives when it is called."""

from __future__ import annotations

import copy
import textwrap
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.author.explain import explain
from penstock.errors import AuthorError
from penstock.expressions.evaluate import EvaluationError
from penstock.graph import codec
from penstock.graph.model import Workflow
from tests.support.interpret import plain, run
from tests.support.source import module

TYPED = "x: int, y: float, b: bool, s: str, xs: list[int], ws: list[str], d: dict[str, int]"
UNTYPED = "x, y, b, s, xs, ws, d"
GIVEN: dict[str, Any] = {
    "x": -7,
    "y": 2.5,
    "b": True,
    "s": "a-b",
    "xs": [3, -1, 2],
    "ws": ["u", "v"],
    "d": {"q": 1, "p": 2},
}
PRELUDE = """
from penstock import task, workflow

@task
def inc(x: int) -> int:
    return x + 1

@task
def same(x):
    return x

@task
def even(x: int) -> bool:
    return x % 2 == 0

@task
def upto(n: int) -> list[int]:
    return list(range(abs(n) % 5))
"""


def made(body: str, params: str = TYPED) -> Any:
    source = f"\n@workflow(max_iterations=60)\ndef flow({params}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
    return module(source, PRELUDE).flow


def compare(flow: Any, given: dict[str, Any], source: str = "") -> None:
    """The compiled workflow gives what the function gives, or fails where it raises."""
    graph = flow.graph
    problems = [problem for problem in flow.check() if problem.severity == "error"]
    if problems:
        assert {problem.code for problem in problems} <= {"P221", "P222"}, (source, problems)
        return
    try:
        wanted = plain(flow(**copy.deepcopy(given)))
    except Exception as raised:
        with pytest.raises(
            EvaluationError, match=f"{type(raised).__name__}|index|64 bits|no element|no field|division"
        ):
            run(graph, **given)
        return
    found = run(graph, **given).get("result")
    assert same_values(found, wanted), (source, found, wanted)


def same_values(found: Any, wanted: Any) -> bool:
    """Equal, of equal types, dicts in equal order. A float parameter may be given an int, which is then a float."""
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same_values, found, wanted))
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(same_values(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, float) and wanted != wanted:
        return bool(found != found)
    return bool(found == wanted) and isinstance(found, bool) is isinstance(wanted, bool)


BODIES = [
    # carried loops
    "model = same(x)\nfor epoch in range(x + 10):\n    model = inc(model)\nreturn model",
    "model = 0\nfor epoch in range(x):\n    model = inc(model)\nreturn model",
    "total = 0\nfor v in xs:\n    total += inc(v)\nreturn total",
    "total = 0\nfor v in upto(x):\n    total = same(total + v)\nreturn total",
    "a, c = 0, []\nfor i, v in enumerate(xs, 1):\n    a = inc(a + i * v)\n    c.append(a)\nreturn [a, c]",
    "last = 0\nfor v in range(x, 10, 3):\n    last = same(v)\nreturn last",
    "last = ''\nfor w, v in zip(ws, xs):\n    last = last + w * inc(v)\nreturn last",
    "n = 0\nfor k in d:\n    n = n + inc(d[k])\nreturn n",
    "n = ''\nfor c in s:\n    n = same(c) + n\nreturn n",
    "out = []\nfor v in xs:\n    if v > 0:\n        out.append(inc(v))\nreturn out",
    "out = []\nfor v in xs:\n    if v > 0:\n        out.append(inc(v))\n    else:\n        out.append(v)\nreturn out",
    "out = []\nfor v in xs:\n    w = inc(v)\n    if w > 2:\n        out.append(w)\n        out.append(-w)\nreturn out",
    "best = xs[0]\nfor v in xs:\n    w = inc(v)\n    if w < best:\n        best = w\nreturn best",
    "n = 0\nfor v in xs:\n    for w in xs:\n        n = inc(n) + v * w\nreturn n",
    # jumps
    "n = x\nwhile True:\n    n = inc(n)\n    if n > 3:\n        break\nreturn n",
    "n = 0\nm = 0\nwhile n < 8:\n    n = inc(n)\n    if n % 2:\n        continue\n    m = m + n\nreturn [n, m]",
    "n = 0\nfor v in xs:\n    if v < 0:\n        break\n    n = inc(n)\nreturn n",
    "n = 0\nfor v in [1, x, 3]:\n    if v < 0:\n        break\n    n = inc(n)\nelse:\n    n = -1\nreturn n",
    "n = 0\nfor v in xs:\n    if even(v):\n        break\nelse:\n    n = -1\nreturn n",
    "n = 0\nwhile n < 5:\n    n = inc(n)\n    if n > 1:\n        if n == 3:\n            break\n        if even(n):\n            continue\n    n = n + 1\nelse:\n    n = 100\nreturn n",
    "out = []\nfor v in xs:\n    if v < 0:\n        continue\n    out.append(inc(v))\nreturn out",
    "n = 0\nm = 0\nfor v in xs:\n    m = 0\n    while m < 9:\n        m = inc(m)\n        if m > v:\n            break\n    if m == 3:\n        break\n    n = n + m\nreturn [n, m]",
    # rounds over constants that decide in the run: written out if they are few
    "n = 0\nfor v in range(30):\n    n = inc(n)\n    if n > 17 + x:\n        break\nelse:\n    n = -1\nreturn n",
    "n = 0\nm = 0\nfor v in range(20):\n    n = inc(n + v)\n    if n > 60:\n        m = n\n        break\n    if even(n):\n        continue\n    m = inc(m)\nreturn [n, m]",
    "n = x\nfor v in range(25):\n    if n % 2 == 0:\n        n = inc(n + v)\n    else:\n        n = n + 1\nreturn n",
    "n = x\nfor v in [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]:\n    n = inc(n) + v if n < 20 else n\nreturn n",
    "n = 0\nlast = 0\nfor v in range(12):\n    n = inc(n)\n    last = v\n    if n > 2 + x:\n        break\nreturn [n, last]",
    "n = x\nfor w in ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i']:\n    if w in ws or n > 3:\n        n = inc(n)\nreturn n",
    "out = []\nn = 0\nfor v in range(9):\n    for u in range(9):\n        if n < 40 and u > v:\n            n = inc(n)\n    if n > 30:\n        break\nreturn n",
    # loops that call no task
    "out = []\nfor v in xs:\n    out.append(v)\nreturn out",
    "out = []\nfor v in upto(x):\n    if v != 1:\n        out.append(v * x)\nreturn out",
    "out = []\nfor v in xs:\n    w = v * 2\n    out.append(w + x)\nreturn out",
    "out = []\nmore = []\nfor v in xs:\n    out.append(v)\n    more.append(-v)\nreturn out + more",
    "out = []\nfor v in xs:\n    out.append(v)\nfor w in out:\n    out = out + [w]\nreturn out",
    "out = {}\nfor k, v in d.items():\n    out[k] = v + 1\nreturn out",
    "out = {}\nout[str(inc(x))] = 1\nreturn out",
    "out = []\nfor a, c in zip(xs, ws):\n    out.append(c * a)\nreturn out",
    # dicts
    "return {w: inc(v) for w, v in zip(d, d.values())}",
    "return {k: inc(v) for k, v in d.items()}",
    "return {k: inc(v) for k, v in d.items() if v > 1}",
    "return {k + '!': v * 2 for k, v in d.items()}",
    "return {w: len(w) for w in ws if w != 'u'}",
    "return {str(v): same(v) for v in upto(x)}",
    "return {w: {u: inc(1) for u in ws} for w in ws}",
    "out = {}\nfor k, v in d.items():\n    out[k] = inc(v)\nreturn out",
    "out = {}\nfor k, v in d.items():\n    w = inc(v)\n    out[k] = same(w)\nreturn out",
    "out = {}\nfor k, v in d.items():\n    if v > 1:\n        out[k] = inc(v)\nreturn out",
    "out = {}\nfor k in ws:\n    out[k] = len(out)\nreturn out",
    "out = {'a': 0}\nout[s] = inc(x)\nout['a'] += 5\nout['b'] = 2\nreturn out",
    "out = [1, 2, 3]\nout[1] = inc(x)\nout[-1] = 0\nreturn out",
    "out = same(xs)\nout[x + 8] = 100\nout.append(s)\nreturn out",
    "a = {'k': x, 'm': 2}\nreturn [[k, inc(v)] for k, v in a.items()]",
    "return [list(d), list(d.keys()), list(d.values()), d.get('q'), d.get(s), d.get('zz', x), 'q' in d]",
    # comprehensions
    "return [[inc(v) for v in upto(w)] for w in xs]",
    "return [[v * w for v in xs] for w in xs]",
    "return [v * w for v in xs for w in xs if v != w]",
    "return [i * v for i, v in enumerate(xs)]",
    "return [w + str(v) for w, v in zip(ws, xs)]",
    "return [a + b for (a, b) in [(1, x), (x, 2)]]",
    "return [v for v in [1, x, 3] if v > 0]",
    "return [inc(i + v) for i, v in enumerate(xs, 5)]",
    "return [inc(a + c) for i, (a, c) in enumerate(zip(xs, xs))]",
    "return [a_b + a for a, b in zip(xs, xs) for a_b in xs]",
    "return sum(v * v for v in xs) + sum([inc(v) for v in xs])",
    "return any(v > 2 for v in xs), all(v > 2 for v in xs), any([]), all(xs)",
    "return ', '.join(w.upper() for w in ws)",
    # lists of different lengths
    "return [inc(a + c) for a, c in zip(xs, [1, 2, 3, 4])]",
    "return [inc(a + c) for a, c in zip([1, 2], [3])]",
    "return [inc(a + c) for a, c in zip(xs, upto(x))]",
    "out = []\nfor a, c in zip(upto(x), xs):\n    d = inc(a)\n    out.append(d + inc(c))\nreturn out",
    "out = []\nfor w, c in zip(ws, xs):\n    out.append(same(w) + str(c))\nreturn out",
    "ys = [inc(v) for v in xs]\nzs = [inc(v) for v in ys if v > 1]\nreturn [inc(a * c) for a, c in zip(ys, zs)]",
    "ys = [inc(v) for v in xs]\nreturn [inc(a + c + e) for a, c, e in zip(ys, xs, [v * 2 for v in ys])]",
    "return [[inc(a + c) for a, c in zip(xs, upto(v))] for v in xs]",
    "return {k: inc(v) for k, v in zip(ws, xs)}",
    "return [inc(a) for a, c in zip(xs, s, strict=False)]",
    # names
    "stopped = 1\nwhile stopped < 3:\n    stopped = inc(stopped)\n    if stopped == 2:\n        break\nreturn stopped",
    "index, count, items = 1, 2, 3\nfor v in xs:\n    index = inc(index + v)\nreturn [index, count, items]",
]


@pytest.mark.parametrize("params", [TYPED, UNTYPED], ids=["typed", "untyped"])
@pytest.mark.parametrize("body", BODIES)
def test_it_gives_what_python_gives(body: str, params: str) -> None:
    flow = made(body, params)
    compare(flow, GIVEN, body)
    compare(flow, {**GIVEN, "x": 3, "xs": [0, 5], "d": {"z": 2, "a": 0}, "b": False, "s": "p"}, body)
    compare(flow, {**GIVEN, "x": 0, "xs": [2], "ws": ["u"], "d": {"a": 1}}, body)


@pytest.mark.parametrize("body", BODIES)
def test_explain_prints_an_object_form_with_the_same_digest(body: str) -> None:
    flow = made(body)
    names: dict[str, Any] = {"__name__": "explained"}
    exec(compile(explain(flow.graph), "<explained>", "exec"), names)
    built = next(value for value in reversed(names.values()) if hasattr(value, "graph"))
    assert codec.digest(built.graph) == codec.digest(flow.graph)


# -- expressions ------------------------------------------------------------------------------------------------------

NUMBERS = (
    "x",
    "y",
    "b",
    "same(x)",
    "same(y)",
    "inc(x)",
    "0",
    "1",
    "-2",
    "3",
    "0.5",
    "-1.5",
    "True",
    "len(xs)",
    "d['q']",
    "xs[0]",
)


@st.composite
def numbers(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(st.sampled_from(["leaf", "binary", "binary", "call", "list", "choice"] if depth else ["leaf"]))
    inner = numbers(depth - 1)
    match kind:
        case "leaf":
            return draw(st.sampled_from(NUMBERS))
        case "binary":
            return f"({draw(inner)} {draw(st.sampled_from(['+', '-', '*', '/', '//', '%']))} {draw(inner)})"
        case "call":
            template = draw(
                st.sampled_from(
                    [
                        "abs({})",
                        "round({})",
                        "round({}, 1)",
                        "-({})",
                        "int({})",
                        "float({})",
                        "({} ** 2)",
                        "(2 ** int(min({}, 5)))",
                        "min({}, 2)",
                        "max({}, 1.5, x)",
                    ]
                )
            )
            return template.format(draw(inner))
        case "list":
            template = draw(
                st.sampled_from(
                    ["sum({})", "min({})", "max({}, default=1)", "len({})", "{}[-1]", "sum({}, 0.5)", "{}.count(3)"]
                )
            )
            return template.format(draw(lists(depth - 1)))
        case _:
            return f"({draw(inner)} if {draw(conditions(depth - 1))} else {draw(inner)})"


@st.composite
def lists(draw: st.DrawFn, depth: int = 1) -> str:
    kind = draw(st.sampled_from(["leaf", "slice", "call", "loop", "written"] if depth > 0 else ["leaf"]))
    match kind:
        case "leaf":
            return draw(st.sampled_from(["xs", "same(xs)", "[1, x, 2]", "[y, 1, 2.5]"]))
        case "slice":
            bounds = [draw(st.sampled_from(["", "0", "1", "-1", "-9", "9", "x", "-x"])) for _ in range(2)]
            step = draw(st.sampled_from(["", ":", ":1", ":-1", ":2"]))
            return f"{draw(lists(depth - 1))}[{':'.join(bounds)}{step}]"
        case "call":
            template = draw(
                st.sampled_from(
                    [
                        "sorted({})",
                        "sorted({}, reverse=True)",
                        "list(reversed({}))",
                        "({} + [x])",
                        "({} * 2)",
                        "list({})",
                    ]
                )
            )
            return template.format(draw(lists(depth - 1)))
        case "loop":
            element = draw(st.sampled_from(["v + 1", "v // 2", "v % 3", "v * x", "inc(int(v))", "abs(v)"]))
            keep = draw(st.sampled_from(["", " if v > 0", " if v in [1, 2, x]", " if not v"]))
            return f"[{element} for v in {draw(lists(depth - 1))}{keep}]"
        case _:
            return f"[{draw(numbers(0))}, {draw(numbers(0))}]"


@st.composite
def texts(draw: st.DrawFn, depth: int = 2) -> str:
    if not depth:
        return draw(st.sampled_from(["s", "same(s)", "'a-b'", "''", "ws[0]", "'é'"]))
    template = draw(
        st.sampled_from(
            ["{}.upper()", "{}.split('-')[0]", "{}.replace('a', 'xx')", "{}.strip()", "{}[1:]", "{}[::-1]", "({} * 2)", "({} + s)", "{}.zfill(5)",
             "'-'.join([{}, s])", "{}.removeprefix('a')", "{}[:x]", "{}.title()", "{}[:1]", "str(x) + {}"]
        )
    )  # fmt: skip
    return template.format(draw(texts(depth - 1)))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 1) -> str:
    kind = draw(st.sampled_from(["compare", "in", "text", "not", "truth"]))
    match kind:
        case "compare":
            return f"{draw(numbers(depth))} {draw(st.sampled_from(['<', '<=', '==', '!=', '>']))} {draw(numbers(0))}"
        case "in":
            return f"{draw(numbers(0))} {draw(st.sampled_from(['in', 'not in']))} {draw(lists(depth))}"
        case "text":
            template = draw(
                st.sampled_from(["{}.startswith('a')", "{}.isdigit()", "'b' in s[:2] + {}", "{} < 'b'", "{}"])
            )
            return template.format(draw(texts(max(depth, 0))))
        case "not":
            return f"not ({draw(conditions(0))})"
        case _:
            return draw(lists(0))


def accepted(flow: Any, source: str) -> Workflow | None:
    try:
        return flow.graph  # type: ignore[no-any-return]
    except AuthorError as error:
        # What is known now and cannot be computed is refused now: 1 / 0.
        problem = error.problems[0]
        assert error.code in ("P311", "P312"), (source, error)
        assert problem.source is not None and problem.source.line > 1 and problem.fix
        return None


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(numbers(), lists(2), texts(), conditions()),
    st.integers(-5, 5),
    st.floats(-4, 4, allow_nan=False).map(lambda number: round(number, 1)),
    st.booleans(),
    st.lists(st.integers(-3, 3), max_size=3),
    st.booleans(),
)
@example("round(y)", 0, 2.5, True, [1], True)
@example("x // -2", 7, 1.0, True, [1], True)
@example("x % y", 7, 0.0, True, [1], True)
@example("x / y", 7, 0.0, True, [1], True)
@example("x ** x", -2, 0.0, True, [1], True)
def test_random_expressions(text: str, x: int, y: float, b: bool, xs: list[int], typed: bool) -> None:
    # Bools are compared with numbers, and texts are searched, only where their types are declared.
    typed = typed or " b" in text or text.startswith("b") or "True" in text or "(b" in text or "'b' in" in text
    flow = made(f"return [{text}]", TYPED if typed else UNTYPED)
    if accepted(flow, text) is not None:
        compare(flow, {**GIVEN, "x": x, "y": y, "b": b, "xs": xs}, text)
