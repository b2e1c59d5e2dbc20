"""The functions that expressions call: what they give, that they give nothing else, and that they end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions import functions, types
from penstock.expressions.evaluate import ABSENT, EvaluationError, NotKnown, _Evaluation, evaluate
from penstock.expressions.go import sprig, times
from penstock.expressions.go import text as golang
from penstock.expressions.go.govaluate import ConditionError, parse
from penstock.expressions.parse import Expr
from penstock.expressions.plain import as_lists
from penstock.expressions.regex import matches
from penstock.expressions.signatures import SIGNATURES
from tests.graph.strategies import anything, examples, plain
from tests.support.speed import within

CEL = {"size", "string", "int", "double", "bool", "has", "truthy", "format", "range", "min", "max", "default"}
JSON = '{"e":[{"n":"B","a":43,"f":["Mo","Jai"]},{"n":"Mo","a":42},{"n":"Jai","a":44}],"a-b":{"c":1},"s":"x"}'
SCOPE: dict[str, Any] = {
    "s": "abc",
    "j": JSON,
    "l": [3, 1, 2],
    "m": {"b": 1, "a": {"c": 2}},
    "t": "2026-03-07T05:06:07Z",
    "rows": [{"n": "x"}, {"n": "y"}],
}


def run(text: str, **scope: Any) -> Any:
    return evaluate(Expr.of(text), SCOPE | scope)


def fails(text: str, **scope: Any) -> str:
    with pytest.raises(EvaluationError) as caught:
        run(text, **scope)
    return str(caught.value)


def test_every_signature_has_its_function_and_every_function_its_signature() -> None:
    assert set(functions.FUNCTIONS) == set(SIGNATURES) - CEL
    for low, high, result in SIGNATURES.values():
        assert 0 <= low <= high
        types.parse(result)


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, value",
    [
        ("default(m.zz, 5)", 5),
        ("default(m.b, 5)", 1),
        ("default(null, 'a')", "a"),
        ("default(1 / 0, 2)", 2),
        ("default(m.zz.y, default(m.b, 3))", 1),
        ("default(false, true)", False),
        ("default('', 'a')", ""),
        ("get(m, 'zz')", None),
        ("get(l, -1)", 2),
        ("get(l, 9)", None),
        ("get(null, 'a')", None),
        ("get(m, 'b')", 1),
        ("get(l, 1.0)", 1),
        ("text('a')", "a"),
        ("text(5.0)", "5"),
        ("text(0.5)", "0.5"),
        ("text([1.0, 'a', null])", '[1,"a",null]'),
        ("text(true)", "true"),
        ("text(1e21)", "1e+21"),
        ("text(0.00001)", "0.00001"),
        ("text(0.0000001)", "1e-7"),
        ("text({'b': 1, 'a': 2})", '{"a":2,"b":1}'),
        ("json('[1, 2.5, \"a\"]')", [1, 2.5, "a"]),
        ("json('{\"a\": null}').a", None),
        ("json('1e2')", 100.0),
        ("json('99999999999999999999')", 1e20),
        ("to_json({'b': [1.0, 1.5]})", '{"b":[1,1.5]}'),
        ("to_json([1], 2)", "[\n  1\n]"),
        ("type(1)", "int"),
        ("type(1.0)", "float"),
        ("type('')", "string"),
        ("type([])", "array"),
        ("type({})", "map"),
        ("type(null)", "nil"),
        ("type(true)", "bool"),
        ("toInt('12')", 12),
        ("toInt('-12')", -12),
        ("toInt(2.9)", 2),
        ("toInt(-2.9)", -2),
        ("toFloat('1e3')", 1000.0),
        ("toFloat(2)", 2.0),
        ("sprintf('%02X', 10)", "0A"),
        ("sprintf('%v', [1, 'a', null])", "[1 a <nil>]"),
        ("sprintf('%v', {'a': 1})", "map[a:1]"),
        ("sprintf('%05.1f|%-4d|%+d', 2.25, 7, 7)", "002.2|7   |+7"),
        ("sprintf('%s %q %t %%', 'a', 'b', true)", 'a "b" true %'),
        ("sprintf('%v', 5e6)", "5e+06"),
        ("sprintf('%03d', -5)", "-05"),
    ],
)
def test_values_and_texts(text: str, value: object) -> None:
    assert repr(run(text)) == repr(value)


@pytest.mark.parametrize(
    "text, value",
    [
        ("split('a,b,c', ',')", ["a", "b", "c"]),
        ("split('a,b,c', ',', 2)", ["a", "b,c"]),
        ("split('ab', '')", ["a", "b"]),
        ("split('ab', '', 0)", []),
        ("join(['a', 'b'], '-')", "a-b"),
        ("join([])", ""),
        ("replace('aaa', 'a', 'b')", "bbb"),
        ("replace('aaa', 'a', 'b', 2)", "bba"),
        ("replace('ab', '', '-')", "-a-b-"),
        ("upper('é')", "É"),
        ("lower('AB')", "ab"),
        ("trim(' a ')", "a"),
        ("trim('xax', 'x')", "a"),
        ("trim(' a ', '')", " a "),
        ("trimPrefix('abc', 'a')", "bc"),
        ("trimSuffix('abc', 'c')", "ab"),
        ("repeat('ab', 2)", "abab"),
        ("matches('abc', '^a.c$')", True),
        ("'abc'.matches('b')", True),
        ("matches('abc', 'B')", False),
        ("matches('abc', '(?i)B')", True),
        ("indexOf('abab', 'b')", 1),
        ("indexOf(l, 2)", 2),
        ("indexOf(l, 9)", -1),
        ("lastIndexOf('abab', 'b')", 3),
        ("lastIndexOf([1, 2, 1], 1)", 2),
        ("toBase64('a')", "YQ=="),
        ("fromBase64('YQ==')", "a"),
        ("keys(m)", ["a", "b"]),
        ("values(m)", [{"c": 2}, 1]),
        ("first(l)", 3),
        ("last(l)", 2),
        ("first([])", None),
        ("slice(l, 1)", [1, 2]),
        ("slice(l, 0, -1)", [3, 1]),
        ("slice(l, 5)", []),
        ("slice('abc', 0, 2)", "ab"),
        ("flatten([1, [2, [3]], []])", [1, 2, 3]),
        ("unique([1, 1.0, '1', [1], [1], true])", [1, "1", [1], True]),
        ("sort(l)", [1, 2, 3]),
        ("sort(l, 'desc')", [3, 2, 1]),
        ("sort(['b', 'a'])", ["a", "b"]),
        ("sortBy(['bb', 'a'], [2, 1])", ["a", "bb"]),
        ("sortBy(['a', 'b', 'c'], [1, 1, 0], 'desc')", ["a", "b", "c"]),
        ("groupBy([1, 2, 3], ['x', 'y', 'x'])", {"x": [1, 3], "y": [2]}),
        ("reverse(l)", [2, 1, 3]),
        ("toPairs({'b': 1, 'a': 2})", [["a", 2], ["b", 1]]),
        ("fromPairs([['a', 1]])", {"a": 1}),
    ],
)
def test_texts_lists_and_maps(text: str, value: object) -> None:
    assert repr(as_lists(run(text))) == repr(value)


@pytest.mark.parametrize(
    "text, value",
    [
        ("plus(1, 2)", 3),
        ("plus(1, 2.5)", 3.5),
        ("plus('a', 'b')", "ab"),
        ("plus([1], [2])", [1, 2]),
        ("minus(1, 0.5)", 0.5),
        ("times(2, 3)", 6),
        ("over(10, 4)", 2.5),
        ("over(10, 2)", 5.0),
        ("over(1, 0)", float("inf")),
        ("remainder(-7, 3)", -1),
        ("remainder(7.0, 3)", 1),
        ("power(2, 3)", 8.0),
        ("power(10, 400)", float("inf")),
        ("sum([1, 2])", 3),
        ("sum([1, 2.5])", 3.5),
        ("sum([])", 0),
        ("product([2, 3])", 6),
        ("mean([1, 2])", 1.5),
        ("median([3, 1, 2])", 2.0),
        ("median([4, 1])", 2.5),
        ("smallest([3, [1, 2]])", 1),
        ("largest([3, 1.5])", 3),
        ("largest([])", None),
        ("abs(-3)", 3),
        ("floor(2.7)", 2.0),
        ("ceil(2.1)", 3.0),
        ("round(2.5)", 3.0),
        ("round(-2.5)", -3.0),
        ("round(2.4)", 2.0),
        ("epoch('1970-01-01T00:01:00Z')", 60.0),
        ("epoch(60)", 60.0),
        ("timestamp(60)", "1970-01-01T00:01:00Z"),
        ("timestamp('2026-01-01T00:00:00+02:00')", "2026-01-01T00:00:00+02:00"),
        ("seconds('1h30m')", 5400.0),
        ("seconds('-1.5s')", -1.5),
        ("seconds(3)", 3.0),
        ("date('2006-01-02', t)", "2026-03-07"),
        ("date('Mon 3:04PM MST', t)", "Sat 5:06AM UTC"),
        ("date('15:04', t, '+02:00')", "07:06"),
        ("parse_date('2024-02-29')", "2024-02-29T00:00:00Z"),
        ("parse_date('29/02/24', '02/01/06')", "2024-02-29T00:00:00Z"),
    ],
)
def test_numbers_and_times(text: str, value: object) -> None:
    assert repr(run(text)) == repr(value)


@pytest.mark.parametrize(
    "text, value",
    [
        ("jsonpath(j, '$.s')", "x"),
        ("jsonpath(j, '$.e[*].n')", ["B", "Mo", "Jai"]),
        ("jsonpath(j, '$.e[0:1].a')", [43]),
        ("jsonpath(j, '$.e[?(@.a > 42 && @.a < 44)].n')", ["B"]),
        ("jsonpath(j, '$.e[?(@.n == \"Mo\")].a')", [42]),
        ("jsonpath(j, '$.e[-1].n')", "Jai"),
        ("jsonpath(j, '$.e[(@.length-1)].n')", "Jai"),
        ("jsonpath(j, '$.e.length')", 3),
        ("jsonpath(j, \"$['a-b'].c\")", 1),
        ("jsonpath(j, '$..n')", ["B", "Mo", "Jai"]),
        ("jsonpath(j, '$.e[0,1].n')", ["B", "Mo"]),
        ("jsonpath(j, '$.e[*].nope')", []),
        ("jsonpath(j, '$.e[?(@.f)].n')", ["B"]),
        ("jsonpath(j, '$.e[?(@.n =~ \"^[BJ]\")].n')", ["B", "Jai"]),
        ("jsonpath(j, '$.e[*].f[*]')", [["Mo", "Jai"]]),
        ("jsonpath(m, '$.a.c')", 2),
        ("jsonpath(j, '$.e[?(@.nope != 1)].n')", []),
        ("collect(['a', '1'])", '["a","1"]'),
        ("collect(['{\"a\": 1}', '[2]'])", '[{"a":1},[2]]'),
        ("collect(['{\"a\": 1}', '2'])", '["{\\"a\\": 1}","2"]'),
        ("collect([])", "[]"),
        ("collect_results(['1', '\"a\"', '{\"b\": 2}'])", '[1,"a",{"b":2}]'),
        ("collect_results(['1.50', '{\"b\": 1e3, \"a\": \" x \"}'], 'succeeded')", '[1.50,{"b":1e3,"a":" x "}]'),
        ('text(json(\'[1.50, 1e3, 2, {"b": -0, "a": true}]\', true))', '[1.50,1e3,2,{"a":true,"b":-0}]'),
        ("text(json('1.50', true)) + text(json('1.50'))", "1.501.5"),
        (
            "loop_names('l', ['x', 3, {'b': 'c', 'a': [1, 'q']}, [1, 'q'], '(a)', null])",
            ["l(0:x)", "l(1:3)", 'l(2:a:[1,"q"],b:c)', "l(3:[1 q])", "l(4:a)", "l(5:[])"],
        ),
        ("collect_maps({'a': ['1', '2'], 'b': ['x', 'y']})", '[{"a":"1","b":"x"},{"a":"2","b":"y"}]'),
        ("collect_maps({})", "[]"),
        ("phase('succeeded')", "Succeeded"),
        ("phase('errored')", "Error"),
        ("phase('cancelled')", "Failed"),
        ("phase('')", "Running"),
        ("atom('5')", 5.0),
        ("atom('-0.5')", -0.5),
        ("atom('true')", True),
        ("atom('yes')", "yes"),
        ("atom('a b')", "a b"),
        ("atom('0x1F')", 31.0),
        ("atom(5)", 5.0),
        ("atom(true)", True),
        ("atom('\"5\"')", "5"),
        ("atom([1])", "[1]"),
        ("atom('1e5')", "1e5"),
        ("atom('')", ""),
    ],
)
def test_what_argo_does_with_texts(text: str, value: object) -> None:
    assert repr(run(text)) == repr(value)


@pytest.mark.parametrize(
    "text, value",
    [
        ("add(1, '2', 3)", 6),
        ("add()", 0),
        ("sub('5', 2)", 3),
        ("mul(2, 3, 4)", 24),
        ("div(7, 2)", 3),
        ("div(-7, 2)", -3),
        ("mod(-7, 3)", -1),
        ("min(3, '1', 2)", 1),
        ("max(3, 1)", 3),
        ("add1('4')", 5),
        ("addf(0.1, 0.2)", 0.3),
        ("divf(1, 4)", 0.25),
        ("int('x')", 0),
        ("int('0x1f')", 31),
        ("int(2.9)", 2),
        ("int('12.7')", 12),
        ("float64('1.5')", 1.5),
        ("atoi('12')", 12),
        ("atoi('1.2')", 0),
        ("round(3.14159, 2)", 3.14),
        ("floor('2.7')", 2.0),
        ("until(3)", [0, 1, 2]),
        ("untilStep(5, 0, -2)", [5, 3, 1]),
        ("seq(2, 5)", "2 3 4 5"),
        ("seq(0, 2, 6)", "0 2 4 6"),
        ("toDecimal('17')", 15),
        ("trimAll('$', '$5.00$')", "5.00"),
        ("trimPrefix('a', 'abc')", "bc"),
        ("title('hello big world')", "Hello Big World"),
        ("repeat(2, 'ab')", "abab"),
        ("substr(1, 3, 'abcd')", "bc"),
        ("substr(1, -1, 'abcd')", "bcd"),
        ("trunc(2, 'abcd')", "ab"),
        ("trunc(-2, 'abcd')", "cd"),
        ("contains('b', 'abc')", True),
        ("hasPrefix('a', 'abc')", True),
        ("hasSuffix('a', 'abc')", False),
        ("quote('a', 1)", '"a" "1"'),
        ("squote('a')", "'a'"),
        ("cat('a', null, 1)", "a 1"),
        ("indent(2, 'a\\nb')", "  a\n  b"),
        ("nindent(1, 'a')", "\n a"),
        ("replace('a', 'b', 'aba')", "bbb"),
        ("plural('one', 'many', 2)", "many"),
        ("snakecase('FirstName')", "first_name"),
        ("kebabcase('FirstName')", "first-name"),
        ("camelcase('first_name')", "FirstName"),
        ("nospace(' a b ')", "ab"),
        ("toString([1, 'a'])", "[1 a]"),
        ("toStrings([1, null, 'a'])", ["1", "a"]),
        ("join('-', [1, 'a'])", "1-a"),
        ("split(',', 'a,b')", {"_0": "a", "_1": "b"}),
        ("splitn(',', 2, 'a,b,c')", {"_0": "a", "_1": "b,c"}),
        ("splitList(',', 'a,b')", ["a", "b"]),
        ("sortAlpha(['b', 'a'])", ["a", "b"]),
        ("sha256sum('a')", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
        ("b64enc('a')", "YQ=="),
        ("b64dec('YQ==')", "a"),
        ("default('d', '')", "d"),
        ("default('d', 'x')", "x"),
        ("default('d', 0)", "d"),
        ("empty({})", True),
        ("coalesce('', 0, 'a')", "a"),
        ("ternary('y', 'n', true)", "y"),
        ("compact(['a', '', null])", ["a"]),
        ("toJson({'a': 1.0})", '{"a":1}'),
        ("fromJson('[1]')", [1]),
        ("list(1, 'a')", [1, "a"]),
        ("append([1], 2)", [1, 2]),
        ("prepend([1], 2)", [2, 1]),
        ("concat([1], [2])", [1, 2]),
        ("first([1, 2])", 1),
        ("last([])", None),
        ("rest([1, 2])", [2]),
        ("initial([1, 2])", [1]),
        ("uniq([1, 1, 'a'])", [1, "a"]),
        ("without([1, 2, 3], 2)", [1, 3]),
        ("has(1, [1])", True),
        ("has(1, [1.0])", False),
        ("slice([1, 2, 3], 1)", [2, 3]),
        ("chunk(2, [1, 2, 3])", [[1, 2], [3]]),
        ("dict('a', 1, 'b')", {"a": 1, "b": ""}),
        ("get(m, 'zz')", ""),
        ("hasKey(m, 'a')", True),
        ("pick(m, 'b', 'zz')", {"b": 1}),
        ("omit(m, 'a')", {"b": 1}),
        ("keys(m)", ["a", "b"]),
        ("merge({'a': 1}, {'a': 2, 'b': 3})", {"a": 1, "b": 3}),
        ("dig('a', 'c', 0, m)", 2),
        ("dig('a', 'z', 0, m)", 0),
        ("mergeOverwrite({'a': 1}, {'a': 2})", {"a": 2}),
        ("base('/a/b.c')", "b.c"),
        ("dir('/a/b.c')", "/a"),
        ("ext('/a/b.c')", ".c"),
        ("clean('/a/../b')", "/b"),
        ("isAbs('a')", False),
        ("date('2006', t)", "2026"),
        ("dateModify('24h', t)", "2026-03-08T05:06:07Z"),
        ("toDate('2006-01-02', '2024-02-29')", "2024-02-29T00:00:00Z"),
        ("unixEpoch(t)", "1772859967"),
        ("duration('95')", "1m35s"),
        ("durationRound('26h')", "1d"),
        ("semverCompare('>=1.2.0, <2', '1.5.1')", True),
        ("semverCompare('^1.2', '2.0.0')", False),
        ("semverCompare('~1.2.3', '1.2.9')", True),
        ("semverCompare('1.x', '1.9.9')", True),
        ("semverCompare('>1.0.0', '1.1.0-beta')", False),
        ("kindOf([])", "slice"),
        ("regexMatch('^a', 'abc')", True),
        ("deepEqual([1], [1])", True),
        ("plural('one', 'many', 1)", "one"),
        ("set({'a': 1}, 'b', 2)", {"a": 1, "b": 2}),
    ],
)
def test_sprig(text: str, value: object) -> None:
    assert repr(as_lists(run(f"sprig_{text}"))) == repr(value)


@pytest.mark.parametrize(
    "text",
    [
        "json('{')",
        "json('NaN')",
        "json(1)",
        "json('[' + sprig_repeat(100000, '['))",
        "text(0.0 / 0.0)",
        "to_json(1.0 / 0.0)",
        "toInt('1.5')",
        "toInt(true)",
        "toInt(' 1')",
        "toInt('9223372036854775808')",
        "toInt(1e300)",
        "toFloat('a')",
        "toFloat('1_0')",
        "sprintf('%d', 'a')",
        "sprintf('%d')",
        "sprintf('a', 1)",
        "sprintf('%99999d', 1)",
        "sprintf('%', 1)",
        "sprintf('%z', 1)",
        "jsonpath(j, '$.nope')",
        "jsonpath(j, 'e')",
        "jsonpath('x', '$')",
        "jsonpath(j, '$.e[')",
        "jsonpath(j, '$.s.x')",
        "collect('a')",
        "collect_results(['a'])",
        "collect_results([], 'skipped')",
        "collect([], 'skipped')",
        "collect_maps({'a': []}, 'skipped')",
        "collect_maps({'a': [1], 'b': []})",
        "condition('a')",
        "condition('1 ==')",
        "condition('a =')",
        "condition(1)",
        "split(1, ',')",
        "join([1])",
        "join('a')",
        "repeat('a', -1)",
        "matches('a', '(')",
        "matches('a', '(?=b)')",
        "matches('a', '\\\\1')",
        "matches(1, 'a')",
        "fromBase64('*')",
        "keys([])",
        "first('a')",
        "slice(1, 0)",
        "sort([1, 'a'])",
        "sort([[1]])",
        "sort(l, 'up')",
        "sortBy(l, [1])",
        "fromPairs([1])",
        "plus(1, 'a')",
        "plus(true, 1)",
        "plus(9223372036854775807, 1)",
        "times('a', 2)",
        "remainder(1, 0)",
        "remainder(1.5, 1)",
        "sum(['a'])",
        "abs('a')",
        "epoch('yesterday')",
        "seconds('1 h')",
        "seconds('')",
        "date(1, t)",
        "date('2006', 'x')",
        "parse_date('x')",
        "sprig_div(1, 0)",
        "sprig_divf(1, 0)",
        "sprig_repeat(-1, 'a')",
        "sprig_slice([1], 2)",
        "sprig_chunk(0, [1])",
        "sprig_ternary(1, 2, 3)",
        "sprig_b64dec('*')",
        "sprig_get(1, 'a')",
        "sprig_fail('no')",
        "sprig_toDate('2006', 'x')",
        "sprig_semverCompare('1', 'x')",
    ],
)
def test_no_value(text: str) -> None:
    assert fails(text)


def test_default_waits_for_what_may_still_come() -> None:
    with pytest.raises(NotKnown):
        run("default(x, 1)", x=ABSENT)
    with pytest.raises(NotKnown):
        run("default(o.x, 1)", o={"x": ABSENT})
    assert run("default(o.y, 1)", o={"x": ABSENT}) == 1
    with pytest.raises(NotKnown):
        run("text([o])", o=ABSENT)


def test_default_does_not_hide_that_the_budget_is_used_up() -> None:
    assert "too long" in fails("default(range(1000000000).all(x, true), 1)")


@pytest.mark.parametrize(
    "text",
    [
        "matches(sprig_repeat(20000, 'a'), '(a+)+$')",
        "matches(sprig_repeat(2000, 'a'), '(a|aa)*c')",
        "range(100000).all(i, matches(sprig_repeat(1000, 'a'), '(a*)*b') || true)",
        "sprig_repeat(1000000000, 'aaaa')",
        "repeat('a', 9223372036854775807)",
        "replace(sprig_repeat(10000000, 'a'), 'a', 'bbbbbbbbbb')",
        "range(1000000).map(i, json(j))",
        "split(sprig_repeat(30000000, ','), ',')",
        "sprig_until(1000000000)",
        "sprig_untilStep(-9223372036854775807, 9223372036854775807, 1)",
        "text(range(100000000))",
        "to_json(range(100000000))",
        "flatten([range(1000000000)])",
        "sort(range(100000000))",
        "unique(range(100000000))",
        "sum(range(100000000))",
        "range(100000).map(i, sprig_uniq(range(1000)))",
        "range(1000000).map(i, sprintf('%4096d', 1))",
        "range(1000000).map(i, sprig_sha256sum(sprig_repeat(10000, 'a')))",
        "range(10000).map(i, jsonpath(range(10000), '$[?(@ > 5)]'))",
        "range(1000000).map(i, sprig_indent(1000, 'a'))",
        "['a']" + ".map(x, join([x, x]))" * 60,
        "['a']" + ".map(x, plus(x, x))" * 60,
        "[[1]]" + ".map(x, sprig_concat(x, x))" * 60,
        "[{}]" + ".map(x, sprig_dict('a', x, 'b', x))" * 60 + ".map(x, text(x))",
        "range(100000).map(i, condition(sprig_repeat(4000, '1 == ') + '1'))",
        "sprig_indent(100000000, 'a')",
        "jsonpath(range(100000000), '$..*')",
    ],
)
def test_work_is_bounded(text: str) -> None:
    with within(20):
        try:
            run(text)
        except EvaluationError as error:
            assert str(error)


def test_a_regular_expression_takes_no_time_for_what_python_never_finishes() -> None:
    with within(5):
        assert run("matches(sprig_repeat(3000, 'a'), '^(a+)+b$')") is False
        assert run("matches(sprig_repeat(3000, 'x'), '(x+x+)+y')") is False


# -- anything at all --------------------------------------------------------------------------------------------------

values = st.one_of(
    plain,
    st.integers(-3, 3),
    st.sampled_from(
        [0.5, float("inf"), float("nan"), 2**63 - 1, -(2**63), "2026-01-01T00:00:00Z", "2006-01-02", "1h", "%v", "$.a"]
    ),
    st.lists(st.integers(-2, 2), max_size=3),
    st.lists(anything, max_size=3),
    st.dictionaries(anything, st.integers(), max_size=2),
    st.sampled_from([range(3), (1, "a"), {"a": {"b": 1}}, [["a", 1]]]),
)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, list[Any]]:
    name = draw(st.sampled_from(sorted(functions.FUNCTIONS)))
    low, high, _ = SIGNATURES[name]
    return name, draw(st.lists(values, min_size=low, max_size=min(high, low + 3)))


@examples(1500)
@given(calls())
def test_any_function_on_anything_has_a_value_or_says_why_not(call: tuple[str, list[Any]]) -> None:
    name, args = call
    scope = {f"a{number}": arg for number, arg in enumerate(args)}
    try:
        value = run(f"{name}({', '.join(scope)})", **scope)
    except EvaluationError as error:
        assert str(error)
        assert len(str(error)) < 2000
        return
    assert types.accepts(types.parse(SIGNATURES[name][2]), value), f"{name} gave {value!r}"


@examples(1500)
@given(st.text(alphabet="ab01.*+?()[]{}|^$\\-,dwspPxQE<:i=!é\n", max_size=12), st.text(alphabet="ab01 \né", max_size=8))
def test_any_pattern_matches_or_is_refused(pattern: str, text: str) -> None:
    try:
        matches(_Evaluation({}), text, pattern)
    except EvaluationError as error:
        assert "regular expression" in str(error)


@examples(1500)
@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "1",
                "'b c'",
                '"',
                "'",
                "==",
                "!=",
                "&&",
                "||",
                "!",
                "(",
                ")",
                ",",
                "in",
                "=~",
                "-",
                "+",
                "?",
                ":",
                "true",
                ".",
                "[",
                "]",
                "\\",
                " ",
                "=",
                "{",
                "'2024-01-01'",
            ]
        ),
        max_size=12,
    ).map("".join)
    | st.text(max_size=12)
)
def test_any_text_is_a_condition_or_has_a_mistake_in_it(text: str) -> None:
    try:
        parse(text)
    except ConditionError as error:
        assert 0 <= error.position <= len(text)
    try:
        evaluate(Expr.of("condition(x)"), {"x": text})
    except EvaluationError as error:
        assert str(error)


@examples(1000)
@given(st.text(alphabet="$@.[]*?()'\"ab01:,-=<>&|!~ \\", max_size=14).map(lambda path: "$" + path), plain)
def test_any_path_leads_somewhere_or_nowhere(path: str, data: Any) -> None:
    try:
        evaluate(Expr.of("jsonpath(d, p)"), {"d": [data], "p": path})
    except EvaluationError as error:
        assert str(error)


# -- conditions as govaluate reads them -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, holds",
    [
        ("foo == foo", True),
        ("foo != foo", False),
        ("'ref/branch/master' == 'ref/branch/master'", True),
        ("1 == 1", True),
        ("1 != 2", True),
        ("1 <= 0", False),
        ("1/2 == 0.5", True),
        ("a < b", True),
        ("a > b", False),
        ("(foo == bar) || (foo == foo)", True),
        ("(1 > 0) && (11 < 2)", False),
        ("Error in (Failed, Error)", True),
        ("!(Succeeded in (Failed, Error))", True),
        ("true == true", True),
        ("false == true", False),
        ("True == true", False),
        ("5 == '5'", False),
        ("5.0 == 5", True),
        ("heads =~ hea", True),
        ("heads !~ '^tai'", True),
        ("'a b' == 'a b'", True),
        ("7 % 4 == 3", True),
        ("2 ** 3 == 8", True),
        ("1 - 2 - 3 == -4", True),
        ("'a' + 1 == 'a1'", True),
        ("true ? true : false", True),
        ("false ? true : false", False),
        ("'2024-01-01' < '2024-02-01'", True),
        ("'2024-01-01' == '2024-01-01 00:00'", True),
        ("[a b] == 'a b'", True),
        ("0x10 == 16", True),
        ("false && 1", False),
        ("foo\\-bar == 'foo-bar'", True),
        ("", True),
        ("-1 < 1", True),
        ("1 in (1, 2)", True),
        ("'1' in (1, 2)", False),
        ("true", True),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    """Each was tried with govaluate itself."""
    assert run("condition(x)", x=text) is holds


@pytest.mark.parametrize(
    "text",
    [
        "a-b == a-b",
        "a b == c",
        "!foo",
        "foo",
        "1 < a",
        "foo && true",
        "true && 1",
        "x in (a)",
        "5 =~ 5",
        "(a == a",
        "a == a)",
        "'a",
        "a.b == c",
        "1.2.3 == 1",
        "a =",
        "a == == b",
        "()",
        "1 == 1 ? yes : no",
        "_a == b",
        "a ==-1",
    ],
)
def test_what_govaluate_refuses(text: str) -> None:
    assert fails("condition(x)", x=text)


# -- as Go writes it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (5.0, "5"),
        (0.1, "0.1"),
        (100000.0, "100000"),
        (1000000.0, "1e+06"),
        (123456789.125, "1.23456789125e+08"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1e100, "1e+100"),
        (-2.5, "-2.5"),
        (1 / 3, "0.3333333333333333"),
        (float("inf"), "+Inf"),
        (float("nan"), "NaN"),
        (12.5e20, "1.25e+21"),
    ],
)
def test_numbers_as_go_prints_them(value: float, text: str) -> None:
    assert golang.number(value) == text


@examples(300)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_number_is_the_same_number(value: float) -> None:
    assert float(golang.number(value)) == value


@pytest.mark.parametrize(
    "layout, text",
    [
        ("2006-01-02T15:04:05Z07:00", "2026-11-05T13:30:05+02:00"),
        ("Mon Jan _2 15:04:05 2006", "Thu Nov  5 13:30:05 2026"),
        ("02 January 06, 3pm", "05 November 26, 1pm"),
        ("2006-01-02 15:04:05.000 -0700", "2026-11-05 13:30:05.123 +0200"),
        ("15:04:05.999999999", "13:30:05.1234"),
        ("20060102", "20261105"),
        ("2006-002", "2026-309"),
        ("no", "no"),
    ],
)
def test_layouts(layout: str, text: str) -> None:
    assert times.written(times.moment("2026-11-05T13:30:05.1234+02:00"), layout) == text


@examples(300)
@given(
    st.integers(0, 4 * 10**9),
    st.sampled_from(
        [
            "2006-01-02T15:04:05Z07:00",
            "Mon, 02 Jan 2006 15:04:05 -0700",
            "2006-002 03:04:05 PM",
            "January 2, 2006 15:04:05",
        ]
    ),
)
def test_a_moment_written_and_read_is_the_same_moment(seconds: int, layout: str) -> None:
    found = times.read(times.written(times.moment(seconds), layout), layout)
    assert found is not None
    assert found.timestamp() == seconds


def test_the_rules_of_sprig_for_numbers() -> None:
    assert [
        sprig.to_int(value) for value in ("", "a", "1a", " 7 ", "+5", None, True, [], 1e300, "99999999999999999999")
    ] == [0, 0, 0, 7, 5, 0, 1, 0, 0, 0]
    assert [sprig.to_float(value) for value in ("1e3", "x", None, 2, "1e99999")] == [1000.0, 0.0, 0.0, 2.0, 0.0]
