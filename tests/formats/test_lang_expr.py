"""expr-lang translated: the same values, and every expression that Argo's own examples use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions.evaluate import EvaluationError, evaluate, to_text
from penstock.expressions.parse import Call, Expr, ExpressionError, Node, reference, show
from penstock.formats.argo.language import tags
from penstock.formats.argo.language.depends import compile_depends
from penstock.formats.argo.language.tags import Tag, split_tags, tag_path
from penstock.formats.argo.language.translate import UnknownVariable, compile_expr, compile_output, compile_tag
from penstock.formats.argo.language.when import compile_when
from penstock.formats.argo.write.depends import depends_text
from penstock.formats.tekton.variables import ROOTS, Var, compile_cel, split_vars
from tests.graph.strategies import anything, examples
from tests.support.speed import within

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("PENSTOCK_CORPUS", ROOT.parent / "shared" / "corpus"))
DATA: dict[str, Any] = {
    "s": "abc",
    "num": "42",
    "yes": "true",
    "empty": "",
    "l": [1.0, 2.0, 3.0],
    "m": {"a": {"b": 1.0}, "x-y": "z"},
    "js": '{"a":[1,2,{"b":"c"}]}',
    "users": [{"name": "Al", "age": 30.0}, {"name": "Bo", "age": 20.0}],
}


def is_known(tag: Tag) -> bool:
    """As the reader takes them: expressions, and variables that begin as one of Argo's does."""
    return tag.kind == "expr" or tag.root in tags.ROOTS


def resolve(path: tuple[str, ...]) -> Node:
    """What Argo calls `inputs.parameters.NAME` is inputs.NAME; of steps there are outputs and a status; the rest is DATA."""
    if path[:2] == ("inputs", "parameters") and len(path) == 3:
        return reference("inputs", path[2])
    if path[0] in ("steps", "tasks") and path[2:3] == ("outputs",) and len(path) >= 4:
        return reference("steps", path[1], "outputs", path[-1])
    if path[0] in ("steps", "tasks") and path[2:] == ("status",):
        return Call("phase", (reference("steps", path[1], "outcome"),))
    if len(path) == 1 and path[0] in DATA:
        return reference("data", path[0])
    raise UnknownVariable(path)


def value(text: str, **inputs: Any) -> Any:
    found = evaluate(
        compile_expr(text, resolve),
        {"data": DATA, "inputs": inputs, "run": {"created": "2026-03-07T05:06:07Z"}, "steps": {}},
    )
    return list(found) if isinstance(found, range) else found


@pytest.mark.parametrize(
    "text, result",
    [
        ("inputs.parameters.x == 'a'", 'inputs.x == "a"'),
        ("inputs.parameters['a-b'] + '!'", 'inputs["a-b"] + "!"'),
        ("asInt(inputs.parameters.n) + 1", "toInt(inputs.n) + 1"),
        ("asInt(inputs.parameters.n) * 1.5", "double(toInt(inputs.n)) * 1.5"),
        ("inputs.parameters.a + inputs.parameters.b", "plus(inputs.a, inputs.b)"),
        ("10 / 4", "over(10, 4)"),
        (
            "steps['flip-coin'].outputs.result == 'heads' ? steps.heads.outputs.result : steps.tails.outputs.result",
            'default(steps["flip-coin"].outputs.result, null) == "heads" ? steps.heads.outputs.result : steps.tails.outputs.result',
        ),
        ("tasks.p.outputs.parameters.msg ?? 'fallback'", 'default(steps.p.outputs.msg, "fallback")'),
        ("tasks.p?.outputs?.parameters?.msg", "default(steps.p.outputs.msg, null)"),
        ("tasks.p?.outputs?.parameters?.msg ?? 'd'", 'default(steps.p.outputs.msg, "d")'),
        ('steps["a-b"].status == "Succeeded"', 'steps["a-b"].outcome == "succeeded"'),
        ("inputs.parameters.x != nil", "default(inputs.x, null) != null"),
        ("filter(l, {# > 1})", "data.l.filter(it, it > 1)"),
        ("map(filter(l, # > 1), # * 2)", "data.l.filter(it, it > 1).map(it2, times(it2, 2))"),
        ("none(l, # == 1)", "!data.l.exists(it, it == 1)"),
        ("m.a.b == nil", 'get(data.m.a, "b") == null'),
        ("l[-1]", "get(data.l, -1)"),
        ("l[1:]", "slice(data.l, 1)"),
        ("l[:2]", "slice(data.l, 0, 2)"),
        ("1..3", "range(1, 4)"),
        ("2 ** 3", "power(2, 3)"),
        ("let x = 1; x + 1", "[1].map(it, it + 1)[0]"),
        ("toJson({a: 1})", 'to_json({"a": 1})'),
        ("toJSON(l)", "to_json(data.l, 2)"),
        ("sprig.trunc(5, s)", "sprig_trunc(5, data.s)"),
        ("sprig.mustToJson(l)", "sprig_toJson(data.l)"),
        ("now().Year()", 'toInt(date("2006", run.created))'),
        ("(now() - s).Minutes() >= 30", "(epoch(run.created) - epoch(data.s)) / 60.0 >= 30"),
        ("s not in ['a']", '!(data.s in ["a"])'),
        ("lower(s) | upper()", "upper(lower(data.s))"),
        ("s matches '^a'", 'matches(data.s, "^a")'),
        ("sum(users, .age)", 'sum(data.users.map(it, get(it, "age")))'),
        ("count(l, # > 1)", "size(data.l.filter(it, it > 1))"),
        ("reduce(l, #acc + #, 0)", "plus(0, sum(data.l.map(it, it)))"),
    ],
)
def test_translation(text: str, result: str) -> None:
    node = compile_expr(text, resolve)
    assert show(node) == result
    assert Expr.tree(node).node == node


@pytest.mark.parametrize(
    "text, result",
    [
        ("10 / 2", 5.0),
        ("1 + 2.5", 3.5),
        ("5 % 3", 2),
        ("-2 ** 2", -4.0),
        ("2 ** -1", 0.5),
        ("1 + 2 * 3 - 4", 3),
        ("m.x ?? 4", 4),
        ("m?.x?.y", None),
        ("{1: 2}", {"1": 2}),
        ("len(s)", 3),
        ("string(2.0)", "2"),
        ("string(nil)", "<nil>"),
        ("string([1, 'a'])", "[1 a]"),
        ("l[-1]", 3.0),
        ("s[0:2]", "ab"),
        ("max(1, 2.5)", 2.5),
        ("min(3, 1, 2)", 1),
        ("max(l)", 3.0),
        ("round(2.5)", 3.0),
        ("first([])", None),
        ("fromJSON('[1, 2]')", [1, 2]),
        ("fromJSON('[1]')[0] + 1", 2),
        ("'a' in m", True),
        ("'b' in m", False),
        ("type(1)", "int"),
        ("true and not false", True),
        ("not true or true", True),
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("sum([1.5, 2])", 3.5),
        ("'abc' contains 'b'", True),
        ("if 1 > 2 {1} else if true {2} else {3}", 2),
        ("let a = 1; let b = a + 1; a + b", 3),
        ("map(l, # * 2)", [2.0, 4.0, 6.0]),
        ("find(l, # > 5)", None),
        ("findIndex(l, # == 2)", 1),
        ("findLast(l, # < 3)", 2.0),
        ("findLastIndex(l, # < 3)", 1),
        ("split('a,b', ',')", ["a", "b"]),
        ("get(m, 'zz')", None),
        ("duration('1h').Seconds()", 3600.0),
        ("int(7 / 2)", 3),
        ("[1, 2] == [1, 2]", True),
        ("l | filter(# > 1) | len()", 2),
        ("1_000", 1000),
        ("0x1F + 0b11 + 0o7", 41),
        (".5 + 1", 1.5),
        (r"'it\'s'", "it's"),
        ("`raw\\n`", "raw\\n"),
        (r'"\u00e9\x41\u{1F600}"', "éA😀"),
        ("uniq([1, 1.0, '1'])", [1, "1"]),
        ("flatten([1, [2, [3]]])", [1, 2, 3]),
        ("sort([3, 1, 2], 'desc')", [3, 2, 1]),
        ("sortBy(users, .age)[0].name", "Bo"),
        ("users | filter(.age > 25) | map(.name) | join(',')", "Al"),
        ("map(users, .nope)", [None, None]),
        ("any(users, {.name == 'Al' && .age > 20})", True),
        ("map(1..3, {let y = #; y * y})", [1, 4, 9]),
        ("any([[1], [2]], {any(#, # == 2)})", True),
        ("jsonpath(js, '$.a[2].b')", "c"),
        ("fromJSON(js)?.zzz?.y ?? 'd'", "d"),
        ("num == '42' ? 'yes' : 'no'", "yes"),
        ("1 != 2 == true", True),
        ("false || true && false", False),
        ("true ?: 1", True),
        ("reduce(1..4, #acc * #)", 24),
        ("1 /* c */ + 1 // x", 2),
        ("date('2024-01-02').Weekday()", 2),
        ("(date('2024-01-02') - date('2024-01-01')).Hours()", 24.0),
        ("date('2024-01-02') > date('2024-01-01')", True),
        ("(date('2024-01-02') + duration('24h')).Day()", 3),
        ("now().Unix()", 1772859967),
        ("concat(['always'], yes == 'true' ? ['test'] : []) | toJSON()", '[\n  "always",\n  "test"\n]'),
        ("sprig.int(num) * 2", 84),
        ("(sprig.int(num) + 1) * 64", 2752),
        ("groupBy(users, .name)['Bo'][0].age", 20.0),
        ("$env.s", "abc"),
        ("'%' + 'd'", "%d"),
    ],
)
def test_values(text: str, result: object) -> None:
    """Each was tried with expr-lang itself."""
    assert repr(value(text)) == repr(result)


def test_a_skipped_step_gives_nothing() -> None:
    assert value("steps.gone.outputs.result == 'x'") is False
    assert value("steps.gone.outputs.result == nil") is True
    assert value("tasks.gone.outputs.parameters.a ?? 'b'") == "b"
    with pytest.raises(EvaluationError):
        value("steps.gone.outputs.result + '-suffix'")


@pytest.mark.parametrize(
    "body, result",
    [
        ("10 / 2", "5"),
        ("1 + 1", "2"),
        ("'a'", "a"),
        ("[1, 'a', 2.0]", '[1,"a",2]'),
        ("inputs.parameters.x", "3"),
        ("true == false", "false"),
        ("toJson('t')", '"t"'),
        ("now()", "2026-03-07T05:06:07Z"),
        ("{'b': 1, 'a': nil}", '{"a":null,"b":1}'),
    ],
)
def test_what_stands_in_the_place_of_a_tag(body: str, result: str) -> None:
    scope = {"inputs": {"x": "3"}, "run": {"created": "2026-03-07T05:06:07Z"}, "data": DATA}
    found = evaluate(compile_tag(body, resolve), scope)
    assert isinstance(found, str)
    assert to_text(found) == result


@pytest.mark.parametrize(
    "text, result",
    [
        ("10 / 2", "5"),
        ("5000000 * 2.0", "1e+07"),
        ("1 + 1", "2"),
        ("[1, 'a']", "[1 a]"),
        ("inputs.parameters.x", "3"),
        ("1 == 1", "true"),
        ("asInt(num) == 1 ? 1 : s", "abc"),
    ],
)
def test_what_argo_keeps_of_an_output(text: str, result: str) -> None:
    assert evaluate(compile_output(text, resolve), {"inputs": {"x": "3"}, "data": DATA}) == result


def test_tags_in_an_expression_are_filled_in_first() -> None:
    def tag(found: Tag) -> Node:
        return reference("inputs", tag_path(found.body)[-1])

    node = compile_expr(
        "asInt(num) > 1 && {{inputs.parameters.safe}} && s == 'x-{{inputs.parameters.y}}'", resolve, tag
    )
    assert show(node) == 'toInt(data.num) > 1 && atom(inputs.safe) && data.s == "x-" + text(inputs.y)'
    with pytest.raises(ExpressionError) as caught:
        compile_expr("{{inputs.parameters.safe}} && nope", resolve, tag)
    assert caught.value.position == len("{{inputs.parameters.safe}} && ")


@pytest.mark.parametrize(
    "text, position, words",
    [
        ("", 0, "empty"),
        ("1 +", 3, "the end"),
        ("a b", 2, "'b'"),
        ("nope", 0, "no variable 'nope'"),
        ("1 + steps.x.nope", 4, "steps.x.nope"),
        ("f(1)", 0, "f() has no counterpart"),
        ("uper('a')", 0, 'mean "upper"'),
        ("len()", 0, "1 argument"),
        ("len(1, 2)", 0, "1 argument"),
        ("sprig.env('A')", 6, "sprig.env() has no"),
        ("sprig.triim('a')", 6, "sprig.trim"),
        ("sprig.uuidv4()", 6, "no counterpart"),
        ("sprig.trunc(1)", 6, "2 argument"),
        ("'a' + 1", 4, "str + int"),
        ("[1] + [2]", 4, "list + list"),
        ("s matches '('", 10, "regular expression"),
        ("'abc", 0, "no end"),
        (r"'\q'", 0, "escape"),
        ("1 ?? 2 + 3", 7, "brackets"),
        ("b'x'", 0, "bytes"),
        ("1.5.x", 3, "'.'"),
        ("5x", 0, "number"),
        ("# > 1", 0, "'#'"),
        ("map(l, #index)", 7, "#index"),
        ("map(l)", 0, "2 arguments"),
        ("reduce(l, # > #acc)", 0, "add or multiply"),
        ("l.foo()", 2, "foo() has no"),
        ("bitand(1, 2)", 0, "in a step"),
        ("{[1]: 2}", 1, "a key"),
        ("a ? b", 5, "':'"),
        ("@", 0, "'@'"),
        ("9223372036854775808", 0, "too large"),
        ("1e999", 0, "too large"),
        ("(" * 100 + "1", 60, "deeper"),
        ("1" + " + 1" * 300, 0, "in a row"),
        ("x" * 70000, 0, "more than"),
        ("true.x", 4, "'.'"),
        ("nil.x", 3, "'.'"),
        ("let x = 1", 9, "';'"),
        ("s not s", 2, "after 'not'"),
        ("-'a'", 0, "for numbers"),
    ],
)
def test_mistakes_have_their_place_and_words(text: str, position: int, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expr(text, resolve)
    assert words in str(caught.value)
    assert caught.value.position == position


PIECES = [
    "s",
    "l",
    "m.a",
    "1",
    "1.5",
    "'x'",
    '"',
    "'",
    "`",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "?",
    "?.",
    "??",
    ".",
    "..",
    "+",
    "-",
    "**",
    "!",
    "not ",
    "in ",
    "&&",
    "|",
    "||",
    "==",
    "<",
    "#",
    ".a",
    "map(",
    "filter(l, ",
    "len(",
    "sprig.",
    "let x = ",
    ";",
    "if ",
    "else ",
    "nil",
    "true",
    " ",
    "\\",
    "é",
    "$env",
    "now()",
    "matches ",
    "//",
    "/*",
    "{{a}}",
    "0x",
    "1e",
    "\x00",
]


@examples(800)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | anything | st.text(max_size=12))
def test_any_text_is_translated_or_has_a_mistake_in_it(text: str) -> None:
    with within(5):
        for make in (compile_expr, compile_tag, compile_output):
            try:
                node = make(text, resolve)
            except ExpressionError as error:
                assert 0 <= error.position <= len(text)
                assert str(error)
                continue
            assert Expr.tree(node).node == node
            try:
                evaluate(node, {"data": DATA, "inputs": {}, "steps": {}, "run": {"created": "2026-01-01T00:00:00Z"}})
            except EvaluationError as error:
                assert str(error)


@pytest.mark.parametrize(
    "before, middle, after",
    [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{a: ", "1", "}"),
        ("!", "true", ""),
        ("-", "1", ""),
        ("len(", "s", ")"),
        ("map(l, ", "#", ")"),
        ("true ? 1 : ", "2", ""),
        ("", "s", " ?? s"),
        ("", "m", ".a"),
        ("", "l", "[0]"),
        ("let x = 1; ", "x", ""),
        ("", "s", " + s"),
        ("", "s", " | upper()"),
        ("if true {1} else {", "1", "}"),
        ("", "1", " < 1"),
    ],
)
@pytest.mark.parametrize("depth", [10, 50, 100, 400, 5000])
def test_nesting_ends_in_a_value_or_a_mistake(before: str, middle: str, after: str, depth: int) -> None:
    try:
        compile_expr(before * depth + middle + after * depth, resolve)
    except ExpressionError:
        assert depth > 10


# -- real ones --------------------------------------------------------------------------------------------------------

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no example manifests in {CORPUS}: set PENSTOCK_CORPUS")


def texts(project: str) -> Iterator[tuple[str, str, str]]:
    """(file, field, text) of every text in the examples."""
    for file in sorted((CORPUS / project).rglob("*.y*ml")):
        for document in yaml.load_all(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            yield from ((file.name, field, text) for field, text in leaves(document, ""))


def leaves(data: Any, field: str) -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        for key, item in data.items():
            yield from leaves(item, key)
    elif isinstance(data, list):
        for item in data:
            yield from leaves(item, field)
    elif isinstance(data, str):
        yield field, data


def any_path(path: tuple[str, ...]) -> Node:
    return reference("inputs", "-".join(path))


def any_tag(tag: Tag) -> Node:
    return any_path(tag_path(tag.body)) if tag.kind == "simple" else compile_tag(tag.body, any_path)


@needs_corpus
def test_every_expression_of_argos_examples() -> None:
    seen = dict.fromkeys(("when", "expression", "depends", "tag", "expression tag"), 0)
    for file, field, text in texts("argo"):
        try:
            if field == "when":
                compile_when(
                    text, lambda tag: any_tag(tag) if tag.kind == "simple" else compile_expr(tag.body, any_path)
                )
                seen["when"] += 1
            elif field in ("expression", "fromExpression"):
                compile_expr(text, any_path, any_tag)
                seen["expression"] += 1
            elif field == "depends":
                names = re.findall(r"[A-Za-z0-9][\w-]*", re.sub(r"\.[A-Z]\w+", "", text))
                found = compile_depends(text, names)
                if found.trigger is None:
                    again = compile_depends(depends_text(found.needs, None, str, ()), names)
                    assert again == found
                else:
                    assert compile_depends(depends_text({}, found.trigger, str, ()), names).trigger == found.trigger
                seen["depends"] += 1
            else:
                for part in split_tags(text, is_known):
                    if isinstance(part, Tag):
                        any_tag(part)
                        seen["tag" if part.kind == "simple" else "expression tag"] += 1
        except ExpressionError as error:
            pytest.fail(f"{file}: {field}: {text!r}: {error} at {error.position}")
    assert all(number > 2 for number in seen.values()), seen


@needs_corpus
def test_every_variable_of_tektons_examples() -> None:
    seen = 0
    for file, field, text in texts("tekton"):
        found = {part.raw for part in split_vars(text) if isinstance(part, Var)}
        seen += len(found)
        wanted = set(re.findall(rf"\$\((?:{'|'.join(ROOTS)})[.\[][^()\s]*\)", text))
        assert found == wanted, f"{file}: {field}: {text!r}"
        if field == "cel":
            compile_cel(text, lambda var: reference(*var.path))
    assert seen > 100
