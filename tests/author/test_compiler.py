"""What a @workflow function compiles to gives what the function itself gives."""

from __future__ import annotations

import pytest

from tests.support.interpret import plain, run
from tests.support.source import module

PROGRAMS = {
    "a call": ("def flow(x: int):\n    return inc(x)", [{"x": 1}]),
    "a chain": ("def flow(x: int):\n    return inc(inc(inc(x)))", [{"x": 1}]),
    "nothing returned": ("def flow(x: int):\n    inc(x)", [{"x": 1}]),
    "a constant returned": ("def flow(x: int):\n    inc(x)\n    return [1, 'a', None]", [{"x": 1}]),
    "keyword arguments and defaults": (
        "def flow(x: int, y: int = 5):\n    return add(b=x, a=y)",
        [{"x": 1}, {"x": 1, "y": 2}],
    ),
    "unpacking a tuple": ("def flow(x: int):\n    a, b = pair(x)\n    return add(b, inc(a))", [{"x": 1}]),
    "unpacking nested": ("def flow(x: int):\n    (a, b), c = pair(x), inc(x)\n    return [a, b, c]", [{"x": 1}]),
    "swapping": ("def flow(x: int):\n    a, b = pair(x)\n    a, b = b, a\n    return a, b", [{"x": 1}]),
    "if and else": (
        "def flow(x: int):\n    if even(x):\n        y = inc(x)\n    else:\n        y = add(x, x)\n    return inc(y)",
        [{"x": 1}, {"x": 2}],
    ),
    "elif": (
        "def flow(x: int):\n    if x > 10:\n        y = 1\n    elif x > 5:\n        y = inc(x)\n    else:\n        y = add(x, x)\n    return y",
        [{"x": 11}, {"x": 7}, {"x": 1}],
    ),
    "a value kept by one branch": (
        "def flow(x: int):\n    y = 0\n    if x > 1:\n        y = inc(x)\n    return y",
        [{"x": 1}, {"x": 2}],
    ),
    "and, or, not": (
        "def flow(x: int):\n    if (even(x) and x > 2) or not x:\n        return 'yes'\n    return 'no'",
        [{"x": 0}, {"x": 2}, {"x": 4}, {"x": 3}],
    ),
    "a task called only if the left side holds": (
        "def flow(x: int):\n    if x > 3 and even(x):\n        return 1\n    return 2",
        [{"x": 4}, {"x": 2}, {"x": 5}],
    ),
    "or calls its right side only if needed": (
        "def flow(x: int):\n    return 1 if x > 3 or even(x) else 2",
        [{"x": 4}, {"x": 2}, {"x": 1}],
    ),
    "a chained comparison": (
        "def flow(x: int):\n    return 'in' if 0 < inc(x) <= 5 else 'out'",
        [{"x": 0}, {"x": 9}, {"x": -3}],
    ),
    "in and not in": (
        "def flow(x: int):\n    a = x in [1, 2]\n    b = x not in upto(x)\n    return [1 if a else 0, 1 if b else 0]",
        [{"x": 1}, {"x": 3}],
    ),
    "is None": (
        "def flow(x: int):\n    y = None\n    if x > 1:\n        y = inc(x)\n    return 'none' if y is None else 'some'",
        [{"x": 1}, {"x": 2}],
    ),
    "truth of a list, a text, a number": (
        "def flow(x: int):\n    a = 1 if upto(x) else 0\n    b = 1 if half(x) else 0\n    c = 1 if show(text='') else 0\n    return [a, b, c]",
        [{"x": 0}, {"x": 3}],
    ),
    "early return": (
        "def flow(x: int):\n    if x > 5:\n        return inc(x)\n    y = add(x, x)\n    if even(y):\n        return y\n    return 0",
        [{"x": 6}, {"x": 2}],
    ),
    "return in nested branches": (
        "def flow(x: int):\n    if x > 5:\n        if even(x):\n            return 1\n        z = inc(x)\n    else:\n        z = 7\n    return add(z, 1)",
        [{"x": 6}, {"x": 7}, {"x": 1}],
    ),
    "a comprehension over a parameter": (
        "def flow(xs: list[int]):\n    return [inc(x) for x in xs]",
        [{"xs": [1, 2]}, {"xs": []}],
    ),
    "a comprehension over a constant": ("def flow(x: int):\n    return [add(x, y) for y in [1, 2, 3]]", [{"x": 1}]),
    "a comprehension over a module constant": (
        "SIZES = (3, 4)\n@workflow\ndef flow(x: int):\n    return [add(x, y) for y in SIZES]",
        [{"x": 1}],
    ),
    "fan-in": ("def flow(x: int):\n    return total([inc(i) for i in upto(x)])", [{"x": 3}, {"x": 5}]),
    "range of a value": ("def flow(n: int):\n    return [inc(i) for i in range(n)]", [{"n": 3}, {"n": 0}]),
    "a filter": (
        "def flow(xs: list[int]):\n    return [inc(x) for x in xs if x > 1 and x != 3]",
        [{"xs": [1, 2, 3, 4]}],
    ),
    "crossed": ("def flow(xs: list[int]):\n    return [add(x, y) for x in xs for y in [10, 20]]", [{"xs": [1, 2]}]),
    "nested, the inner list from the outer item": (
        "def flow(xs: list[list[int]]):\n    return [inc(y) for x in xs for y in x]",
        [{"xs": [[1], [2, 3], []]}],
    ),
    "zipped": ("def flow(xs: list[int]):\n    return [add(x, y) for x, y in zip(xs, [10, 20])]", [{"xs": [1, 2]}]),
    "enumerated": ("def flow(xs: list[int]):\n    return [add(i, x) for i, x in enumerate(xs)]", [{"xs": [5, 6]}]),
    "pairs from a task": (
        "def flow(xs: list[int]):\n    ps = [pair(x) for x in xs]\n    return [add(a, b) for a, b in ps]",
        [{"xs": [1, 2]}],
    ),
    "two tasks for each item": ("def flow(xs: list[int]):\n    return [inc(add(x, 1)) for x in xs]", [{"xs": [1, 2]}]),
    "a list for each item": (
        "def flow(xs: list[int]):\n    return [[add(x, y) for y in upto(x)] for x in xs]",
        [{"xs": [1, 2, 3]}],
    ),
    "a branch for each item": (
        "def flow(xs: list[int]):\n    return [inc(x) if even(x) else add(x, 100) for x in xs]",
        [{"xs": [1, 2, 3]}],
    ),
    "items with a field": (
        "def flow(xs: list[int]):\n    rows = [info(x) for x in xs]\n    return [add(r['n'], r['double']) for r in rows]",
        [{"xs": [1, 2]}],
    ),
    "a list built without a task": (
        "def flow(x: int):\n    ys = [y + 1 for y in upto(x) if y > 0]\n    return total(ys)",
        [{"x": 4}, {"x": 0}],
    ),
    "a list of constants written out": (
        "def flow(x: int):\n    return [x, *[1]] if False else [k * 2 for k in [1, 2]]",
        [{"x": 1}],
    ),
    "a for loop that only acts": (
        "def flow(xs: list[int]):\n    for x in xs:\n        y = inc(x)\n        add(y, x)\n    return 1",
        [{"xs": [1, 2]}],
    ),
    "append": (
        "def flow(xs: list[int]):\n    out = []\n    for x in xs:\n        out.append(inc(x))\n    return out",
        [{"xs": [1, 2]}],
    ),
    "append after other work": (
        "def flow(xs: list[int]):\n    out = []\n    for x in xs:\n        y = inc(x)\n        z = add(y, x)\n        out.append(inc(z))\n    return total(out)",
        [{"xs": [1, 2]}],
    ),
    "two lists appended to": (
        "def flow(xs: list[int]):\n    a = []\n    b = []\n    for x in xs:\n        y = inc(x)\n        a.append(y)\n        b.append(add(y, x))\n    return [a, b]",
        [{"xs": [1, 2]}],
    ),
    "a loop over constants that carries": (
        "def flow(x: int):\n    for k in [1, 2, 3]:\n        x = add(x, k)\n    return x",
        [{"x": 1}],
    ),
    "a loop over constants whose last value is used": (
        "def flow(x: int):\n    y = 0\n    for k in range(3):\n        y = add(x, k)\n    return y",
        [{"x": 1}],
    ),
    "a branch in a loop over constants": (
        "def flow(x: int):\n    for k in range(4):\n        if even(x):\n            x = add(x, k)\n        else:\n            x = inc(x)\n    return x",
        [{"x": 1}],
    ),
    "while over a number": (
        "def flow(x: int):\n    while x < 10:\n        x = add(x, 3)\n    return x",
        [{"x": 1}, {"x": 50}],
    ),
    "while with a task in its condition": (
        "def flow(x: int):\n    while not even(x):\n        x = inc(x)\n    return x",
        [{"x": 1}, {"x": 2}],
    ),
    "while with a task in its condition and a variable called proceed": (
        "def flow(x: int):\n    proceed = x\n    while not even(proceed):\n        proceed = inc(proceed)\n    return proceed",
        [{"x": 1}, {"x": 2}],
    ),
    "while with arithmetic": (
        "def flow(n: int):\n    i = 0\n    out = 1\n    while i < n:\n        out = add(out, out)\n        i += 1\n    return out",
        [{"n": 0}, {"n": 5}],
    ),
    "while that carries a list": (
        "def flow(x: int):\n    xs = upto(x)\n    while total(xs) < 40:\n        xs = [add(v, 5) for v in xs]\n    return xs",
        [{"x": 4}],
    ),
    "while with a branch": (
        "def flow(x: int):\n    while x < 20:\n        if even(x):\n            x = add(x, 5)\n        else:\n            x = inc(x)\n    return x",
        [{"x": 1}],
    ),
    "while inside while": (
        "def flow(x: int):\n    y = 0\n    while x < 3:\n        y = 0\n        while y < 2:\n            y = inc(y)\n        x = add(x, 1)\n    return add(x, y)",
        [{"x": 0}],
    ),
    "a loop inside a branch": (
        "def flow(x: int, xs: list[int]):\n    out = [0]\n    if x > 1:\n        out = [add(v, x) for v in xs]\n    return total(out)",
        [{"x": 1, "xs": [1]}, {"x": 2, "xs": [1, 2]}],
    ),
    "a while inside a branch": (
        "def flow(x: int):\n    if x > 5:\n        while x < 9:\n            x = inc(x)\n    return x",
        [{"x": 1}, {"x": 6}],
    ),
    "a captured value inside two loops": (
        "def flow(x: int, xs: list[int]):\n    k = inc(x)\n    return [[inc(add(k, y)) for y in upto(z)] for z in xs]",
        [{"x": 1, "xs": [1, 2]}],
    ),
    "f-strings": (
        "def flow(x: int, s: str):\n    y = half(x)\n    return show(text=f'{s}-{x}:{y}:{y:.2f}:{x > 1}:{[x]}:{{}}')",
        [{"x": 3, "s": "a${{b"}],
    ),
    "an f-string of one value": ("def flow(x: int):\n    return show(text=f'{x}')", [{"x": 3}]),
    "text as it stands": ("def flow(x: int):\n    return show(text='${{ params.x }}')", [{"x": 3}]),
    "indexing and fields": (
        "def flow(x: int):\n    d = info(x)\n    p = pair(x)\n    return [d['double'], d['n'], p[0], p[-1], upto(x)[-1]]",
        [{"x": 3}],
    ),
    "arithmetic": (
        "def flow(x: int, f: float):\n    return [x + 1, 2 * x - 3, x / 2, x * f, f + x, -x]",
        [{"x": 3, "f": 0.5}],
    ),
    "text and lists added": (
        "def flow(x: int, s: str):\n    return [s + '!', upto(x) + [x, 1], len(upto(x))]",
        [{"x": 3, "s": "a"}],
    ),
    "min, max, int, float, str, bool": (
        "def flow(x: int):\n    return [min(x, 2), max(x, 2), float(x), str(x), bool(x), int(half(x))]",
        [{"x": 3}, {"x": 0}],
    ),
    "or and and as values": (
        "def flow(x: int, s: str):\n    return [inc(x) or 5, x and inc(x), s or 'none', upto(x) or [7], x > 1 or x < 0, (even(x) and 'even') or 'odd']",
        [{"x": 0, "s": ""}, {"x": 3, "s": "a"}],
    ),
    "a loop over one or another": (
        "def flow(xs: list[int]):\n    ys = xs or [1, 2]\n    return [inc(y) for y in ys]",
        [{"xs": []}, {"xs": [5]}],
    ),
    "waiting without using": (
        "def flow(x: int):\n    a = inc(x)\n    b = inc.after(a)(x)\n    return [add.after(a, b)(x, k) for k in upto(x)]",
        [{"x": 3}],
    ),
    "a filter that does not look at the item": (
        "def flow(x: int, xs: list[int]):\n    return [total([inc(v) for v in xs if v > 1 and x > 2]), [inc(v) for v in xs if x > 2], [inc(add(v, 1)) for v in xs if x > 2]]",
        [{"x": 0, "xs": [1, 2]}, {"x": 5, "xs": [1, 2]}],
    ),
    "floats that are ints": (
        "def flow(f: float, g: float, fs: list[float]):\n    return [f / g, f * 2, g + 0.5, [v / 2 for v in fs]]",
        [{"f": 3, "g": 2, "fs": [1, 0.5]}],
    ),
    "a value that changes its type in a loop": (
        "def flow(x: int):\n    best = None\n    i = 0\n    while i < 3:\n        if best:\n            y = add(x, 100)\n        else:\n            y = inc(x)\n        best = y\n        i += 1\n    return best",
        [{"x": 3}],
    ),
    "a long list that begins with a number": (
        "def flow(x: int):\n    ys = [0]\n    for k in range(1100):\n        ys.append(inc(k))\n    return total(ys)",
        [{"x": 1}],
    ),
    "the same loop variable twice": (
        "def flow(xs: list[int]):\n    for v in xs:\n        inc(v)\n    for v in xs:\n        inc(v)\n    return [inc(v) for v in xs]",
        [{"xs": [1, 2]}],
    ),
    "a name bound again after a loop": (
        "def flow(x: int):\n    n = 0\n    while n < 2:\n        t = inc(n)\n        n = add(t, 1)\n    t = inc(x)\n    return [t, n]",
        [{"x": 1}],
    ),
    "an outer name read in a branch of a loop and after it": (
        "def flow(x: int, xs: list[int]):\n    k = inc(x)\n    out = []\n    for v in xs:\n        y = v\n        if even(v):\n            y = add(v, k)\n        out.append(add(y, k))\n    return out",
        [{"x": 1, "xs": [1, 2]}],
    ),
    "branches that are settled already": (
        "def flow(x: int):\n    if x > 5:\n        if even(x):\n            return 1\n    if x > 3:\n        y = inc(x)\n    else:\n        y = add(x, x)\n    return y",
        [{"x": 6}, {"x": 7}, {"x": 4}, {"x": 1}],
    ),
    "a list printed": ("def flow(xs: list[int]):\n    return show(text=f'{xs} {[xs, 1]}')", [{"xs": [1, 2]}]),
    "constants of several types": (
        "VS = [*range(40), 0.5]\n@workflow\ndef flow(x: int):\n    return [show(text=f'{v}') for v in VS]",
        [{"x": 1}],
    ),
    "a nested workflow that returns nothing": (
        "def inner(a: int):\n    inc(a)\n@workflow\ndef flow(x: int):\n    y = inner(x)\n    return [y is None, 1]",
        [{"x": 1}],
    ),
    "a filter before a loop that hides its variable": (
        "def flow(x: int):\n    return [add(a, b) for a in [1, 2, 3] if a > 1 for b in [10, 20]]",
        [{"x": 1}],
    ),
    "a dict passed on": ("def flow(x: int):\n    d = {'a': inc(x), 'b': [x, 2]}\n    return d", [{"x": 1}]),
    "a nested workflow": (
        "def inner(a: int, b: int = 2):\n    return add(inc(a), b)\n@workflow\ndef flow(x: int):\n    return inc(inner(inner(x), b=x))",
        [{"x": 1}],
    ),
    "a nested workflow for each item": (
        "def inner(a: int):\n    return [inc(a), a]\n@workflow\ndef flow(xs: list[int]):\n    return [inner(x) for x in xs]",
        [{"xs": [1, 2]}],
    ),
    "a nested workflow with a loop of its own": (
        "def inner(a: int):\n    while a < 5:\n        a = inc(a)\n    return a\n@workflow\ndef flow(xs: list[int]):\n    return total([inner(x) for x in xs])",
        [{"xs": [1, 9]}],
    ),
    "options of one use": ("def flow(x: int):\n    return inc.options(cpu=2, name='bigger')(inc(x))", [{"x": 1}]),
    "constants computed now": (
        "RATES = {'a': 1, 'b': 2}\n@workflow\ndef flow(x: int):\n    return [add(x, RATES[k]) for k in sorted(RATES)] + [len('abc'), 2 ** 3]",
        [{"x": 1}],
    ),
    "a static branch": (
        "FLAG = True\n@workflow\ndef flow(x: int):\n    if FLAG:\n        return inc(x)\n    return explode(x)",
        [{"x": 1}],
    ),
    "a docstring, pass and an annotation": (
        "def flow(x: int) -> int:\n    '''Words.'''\n    pass\n    y: int = inc(x)\n    return y",
        [{"x": 1}],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_compiled_workflow_gives_what_the_function_gives(name: str) -> None:
    source, calls = PROGRAMS[name]
    flow = module(f"@workflow\n{source}\n" if source.startswith("def") else f"{source}\n").flow
    assert flow.check() == []
    for params in calls:
        expected = plain(flow(**params))
        assert run(flow.graph, **params).get("result") == expected


def test_a_chained_comparison_calls_only_what_it_needs() -> None:
    flow = module("@workflow\ndef flow(x: int):\n    return 1 if 0 < inc(x) < inc(inc(x)) else 0\n").flow
    assert [step.when is not None for step in flow.graph.steps] == [False, True, True]
