"""Expressions as text and as trees: what is read, what is refused, and that nothing is lost in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.infer import TypeMismatch, infer
from penstock.expressions.parse import (
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_HEIGHT,
    MAX_TEXT,
    Binary,
    Call,
    Choice,
    Const,
    Expr,
    ExpressionError,
    Index,
    ListOf,
    Macro,
    MapOf,
    Member,
    Name,
    Node,
    Unary,
    children,
    is_identifier,
    parse,
    path_of,
    quote,
    rebuild,
    reference,
    references,
    replace,
    show,
)
from penstock.expressions.template import Template, parse_template, show_template
from tests.graph.strategies import anything, constants, examples, nodes, template_expressions, templates

A, B, C, D = Name("a"), Name("b"), Name("c"), Name("d")


# -- there and back ---------------------------------------------------------------------------------------------------


@examples(1000)
@given(nodes)
def test_a_tree_shown_and_parsed_is_the_same_tree(node: Node) -> None:
    again = parse(show(node))
    assert again == node
    assert repr(again) == repr(node), "1, 1.0 and true are equal in Python and not here"


@examples(300)
@given(nodes)
def test_canonical_text_is_a_fixed_point(node: Node) -> None:
    text = show(node)
    assert Expr.of(text).text == text
    assert Expr.tree(node) == Expr.of(f"  (\n{text}\t) ")


@examples(300)
@given(nodes, nodes)
def test_different_trees_have_different_text(one: Node, other: Node) -> None:
    assert (show(one) == show(other)) == (repr(one) == repr(other))


@examples(500)
@given(st.text(max_size=20))
def test_every_text_survives_quoting(text: str) -> None:
    assert parse(quote(text)) == Const(text)
    assert quote(text).isprintable() or all(ord(char) > 0x9F for char in quote(text) if not char.isprintable())


@pytest.mark.parametrize(
    "written, tree",
    [
        ("a || b && c", Binary("||", A, Binary("&&", B, C))),
        ("a && b || c", Binary("||", Binary("&&", A, B), C)),
        ("(a || b) && c", Binary("&&", Binary("||", A, B), C)),
        ("a == b && c", Binary("&&", Binary("==", A, B), C)),
        ("a + b < c", Binary("<", Binary("+", A, B), C)),
        ("a + b * c", Binary("+", A, Binary("*", B, C))),
        ("a * b + c", Binary("+", Binary("*", A, B), C)),
        ("a - b - c", Binary("-", Binary("-", A, B), C)),
        ("a - (b - c)", Binary("-", A, Binary("-", B, C))),
        ("a / b % c", Binary("%", Binary("/", A, B), C)),
        ("a < b == c", Binary("==", Binary("<", A, B), C)),
        ("a in b", Binary("in", A, B)),
        ("!a.b", Unary("!", Member(A, "b"))),
        ("!a && b", Binary("&&", Unary("!", A), B)),
        ("-a * b", Binary("*", Unary("-", A), B)),
        ("-a.b", Unary("-", Member(A, "b"))),
        ("-5", Const(-5)),
        ("- 5", Const(-5)),
        ("--5", Const(5)),
        ("a - -5", Binary("-", A, Const(-5))),
        ("a ? b : c ? d : a", Choice(A, B, Choice(C, D, A))),
        ("(a ? b : c) ? d : a", Choice(Choice(A, B, C), D, A)),
        ("a ? b : c || d", Choice(A, B, Binary("||", C, D))),
        ("a || b ? c : d", Choice(Binary("||", A, B), C, D)),
        ("a.b[c].d", Member(Index(Member(A, "b"), C), "d")),
        ('a["b"]', Member(A, "b")),
        ('a["b-c"]', Index(A, Const("b-c"))),
        ("a.in", Index(A, Const("in"))),
        ("a.map(x, x + 1)", Macro("map", A, "x", Binary("+", Name("x"), Const(1)))),
        ("a.size()", Call("size", (), A)),
        ("size(a)", Call("size", (A,))),
        ("[a, b,]", ListOf((A, B))),
        ("{'k': a}", MapOf(((Const("k"), A),))),
        ("0x1F", Const(31)),
        ("1.5e3", Const(1500.0)),
        (".5", Const(0.5)),
        ("1e3", Const(1000.0)),
        (r"'\x41\u00e9\U0001F600\101\n'", Const("Aé😀A\n")),
        ("-9223372036854775808", Const(-(2**63))),
        ("a\f+\r\n\tb", Binary("+", A, B)),
        ("android", Name("android")),
        ("1.x", Member(Const(1), "x")),
        ("(-1).x", Member(Const(-1), "x")),
    ],
)
def test_precedence_and_literals(written: str, tree: Node) -> None:
    assert parse(written) == tree
    assert parse(show(tree)) == tree


@pytest.mark.parametrize(
    "written, canonical",
    [
        ("((a))", "a"),
        ("(a+b)*c", "(a + b) * c"),
        ("a+(b*c)", "a + b * c"),
        ("(a&&b)&&c", "a && b && c"),
        ("a&&(b&&c)", "a && (b && c)"),
        ("!(a)", "!a"),
        ("!(-a)", "!(-a)"),
        ("-(!a)", "-(!a)"),
        ("!!(--a)", "!!(--a)"),
        ("!-5", "!-5"),
        ("!(a||b)", "!(a || b)"),
        ("-(a+b)", "-(a + b)"),
        ("(a?b:c).d", "(a ? b : c).d"),
        ("(a+b).c", "(a + b).c"),
        ("a ? (b) : (c?d:a)", "a ? b : c ? d : a"),
        ("a ? (b ? c : d) : a", "a ? (b ? c : d) : a"),
        ("'it'", '"it"'),
        ("'\"'", '"\\""'),
        ("params.in", 'params["in"]'),
        (" params.in", 'params["in"]'),
        ('steps["a"].outputs["b"]', "steps.a.outputs.b"),
        ("steps['a-b'].outputs.x", 'steps["a-b"].outputs.x'),
    ],
)
def test_canonical_text(written: str, canonical: str) -> None:
    assert Expr.of(written).text == canonical


# -- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, position, words",
    [
        ("", 0, "empty"),
        ("   ", 0, "empty"),
        ("a +", 3, "the end"),
        ("a b", 2, "'b'"),
        ("a and b", 2, "&&"),
        ("not a", 0, "!"),
        ("a + !-b", 4, "brackets"),
        ("a == b or c", 7, "||"),
        ("(a", 2, "')'"),
        ("a)", 1, "')'"),
        ("a ? b", 5, "':'"),
        ("a ? b ? c : d : a", 6, "':'"),
        ("a.", 2, "a name"),
        ("a.5", 1, "the end"),
        ("[a b]", 3, "','"),
        ("{a}", 2, "':'"),
        ("f(a)", 0, "no function f()"),
        ("a + f(a)", 4, "no function f()"),
        ("a.f()", 2, "no method f()"),
        ("size()", 0, "1 argument"),
        ("defualt(a, b)", 0, 'mean "default"'),
        ("default(a)", 0, "2 argument"),
        ("split(a)", 0, "2 to 3 argument"),
        ("a.matches()", 2, "1 argument"),
        ("a.size(b)", 2, "0 argument"),
        ("a.map(b)", 2, "a variable"),
        ("a.map(b.c, d)", 2, "a variable"),
        ("has(a)", 0, "has(a.b)"),
        ("'abc", 0, "no end"),
        ('a + "abc', 4, "no end"),
        ("a + 'b\nc'", 4, "no end"),
        ("a @ b", 2, "'@'"),
        ("a = b", 2, "'='"),
        ("a & b", 2, "'&'"),
        ("1u", 0, "unsigned"),
        ("a + b'x'", 4, "byte"),
        ("a + r'x'", 4, "byte"),
        (r"'\q'", 0, "escape"),
        (r"'\ud800'", 0, "character"),
        (r"'\UFFFFFFFF'", 0, "character"),
        ("1e999", 0, "too large"),
        ("a + 1e999", 4, "too large"),
        ("if", 0, "a value"),
        ("٣", 0, "'٣'"),
        ("a\x0b+ b", 1, "no meaning"),
        ("a\u00a0+ b", 1, "no meaning"),
        ("9" * (MAX_DIGITS + 1), 0, "digits"),
        ("0x" + "f" * MAX_DIGITS, 0, "digits"),
        ("a" * (MAX_TEXT + 1), 0, "too long"),
    ],
)
def test_a_mistake_has_its_place_and_its_words(text: str, position: int, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.position == position
    assert words in str(caught.value)


_PIECES = st.sampled_from(
    [
        "a",
        "b.c",
        "1",
        "1.5",
        "'x'",
        '"',
        "'",
        "\\",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "?",
        ".",
        "+",
        "-",
        "!",
        "&&",
        "||",
        "==",
        "in",
        "and",
        "size(",
        ".map(x,",
        "has(",
        "true",
        "0x",
        "1e",
        "u",
        "b'",
        " ",
        "\n",
        "é",
        "\x00",
        "$",
        "9" * 30,
    ]
)


@examples(1000)
@given(st.lists(_PIECES, max_size=12).map("".join) | st.text(max_size=12))
def test_any_text_is_an_expression_or_has_a_mistake_inside_it(text: str) -> None:
    try:
        node = parse(text)
    except ExpressionError as error:
        assert 0 <= error.position <= len(text)
        assert str(error)
    else:
        assert parse(show(node)) == node


_NESTS = {
    "round brackets": ("(", "a", ")"),
    "lists": ("[", "a", "]"),
    "maps": ("{'k': ", "a", "}"),
    "not": ("!", "a", ""),
    "minus": ("-", "a", ""),
    "both signs": ("!(-(", "a", "))"),
    "choices to the right": ("a ? b : ", "c", ""),
    "choices in the middle": ("a ? (", "b", ") : c"),
    "choices in the test": ("(", "a", " ? b : c)"),
    "members": ("", "a", ".b"),
    "indexes": ("", "a", "[0]"),
    "indexes in indexes": ("a[", "b", "]"),
    "methods": ("", "a", ".size()"),
    "calls": ("size(", "a", ")"),
    "calls of two": ("min(a, ", "b", ")"),
    "calls of lists": ("size([", "a", "])"),
    "arguments of methods": ("a.contains(", "b", ")"),
    "macros": ("a.map(x, ", "x", ")"),
    "macros in a row": ("", "a", ".map(x, x)"),
    "plus": ("", "a", " + a"),
    "and": ("", "a", " && a"),
    "or": ("", "a", " || a"),
    "equal": ("", "a", " == a"),
    "every level to the right": ("a || b && c == d + a * (", "b", ")"),
    "every level to the left": ("(", "a", " * b + c == d && a || b)"),
    "everything": ("-(!a.b[size([{'k': min(a, ", "b", ")}])] + a ? b : c)"),
}


@pytest.mark.parametrize("kind", _NESTS)
@pytest.mark.parametrize("depth", [10, 30, 60, 90, 99, 100, 101, 150, 199, 200, 201, 1000, 30_000])
def test_nesting_is_bounded_for_every_walker(kind: str, depth: int) -> None:
    """Whatever the parser lets through, everything that walks the tree can walk. Nothing ends in a RecursionError."""
    before, middle, after = _NESTS[kind]
    text = before * depth + middle + after * depth
    try:
        node = parse(text)
    except ExpressionError as error:
        assert depth > 10
        assert 0 <= error.position <= len(text)
        return
    assert depth <= MAX_HEIGHT
    assert parse(show(node)) == node
    assert references(text)
    assert replace(node, {("zz",): B}) == node
    for walk in (
        lambda: infer(node, lambda path: None),
        lambda: evaluate(node, {"a": True, "b": [True], "c": 1, "d": 2}),
    ):
        try:
            walk()
        except (TypeMismatch, EvaluationError) as error:
            assert "deep" not in str(error)


@pytest.mark.parametrize("kind", _NESTS)
def test_ordinary_nesting_is_allowed(kind: str) -> None:
    before, middle, after = _NESTS[kind]
    parse(before * 10 + middle + after * 10)


def test_long_chains_and_wide_lists_are_allowed() -> None:
    parse(" && ".join(f"steps.s{i}.outcome == 'succeeded'" for i in range(150)))
    parse("[" + ", ".join(map(str, range(10_000))) + "]")


def test_chains_of_every_level_add_up() -> None:
    chain = " * ".join("a" * 90)
    for op in ("+", "==", "&&", "||"):
        chain += f" {op} " + f" {op} ".join("a" * 90)
    with pytest.raises(ExpressionError):
        parse(chain)


def test_a_caller_far_down_the_stack_gets_the_same_kind_of_error() -> None:
    text = "(" * (MAX_DEPTH - 10) + "a" + ")" * (MAX_DEPTH - 10)

    def down(levels: int) -> Node:
        return down(levels - 1) if levels else parse(text)

    parse.cache_clear()
    with pytest.raises(ExpressionError, match="deep"):
        down(600)
    assert parse(text) == A, "the failure is not remembered"


# -- reading and changing the tree ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, paths",
    [
        ("params.lr", [("params", "lr")]),
        ("steps.a.outputs.x", [("steps", "a", "outputs", "x")]),
        ('steps["a-b"].outputs["x-y"]', [("steps", "a-b", "outputs", "x-y")]),
        ("params.a + params.b + params.a", [("params", "a"), ("params", "b")]),
        ("params.a[params.i].x", [("params", "a"), ("params", "i")]),
        ("size(params.a) > 1 ? item.x : item.y", [("params", "a"), ("item", "x"), ("item", "y")]),
        ("params.l.map(x, x + params.k)", [("params", "l"), ("params", "k")]),
        ("params.l.map(x, params.m.filter(y, y == x))", [("params", "l"), ("params", "m")]),
        ("x.map(x, x.y)", [("x",)]),
        ("[1].map(params, params.a)", []),
        ("{'a': params.x}", [("params", "x")]),
        ("has(params.x.y)", [("params", "x", "y")]),
        ("1 + 2", []),
        ("'params.x'", []),
    ],
)
def test_references(text: str, paths: list[tuple[str, ...]]) -> None:
    assert list(references(text)) == paths


@pytest.mark.parametrize(
    "text, swap, result",
    [
        ("params.a", {("params", "a"): "steps.b.outputs.c"}, "steps.b.outputs.c"),
        ("params.a.x", {("params", "a"): "item.b"}, "item.b.x"),
        ("params.a['x-y']", {("params", "a"): "item.b"}, 'item.b["x-y"]'),
        ("params.a + params.b", {("params", "a"): "params.b", ("params", "b"): "params.a"}, "params.b + params.a"),
        ("params.a.b", {("params", "a"): "x", ("params", "a", "b"): "y"}, "y"),
        ("params.a * 2", {("params", "a"): "1 + 1"}, "(1 + 1) * 2"),
        ("params.ab", {("params", "a"): "x"}, "params.ab"),
        ("l.map(x, x + params.a)", {("params", "a"): "1"}, "l.map(x, x + 1)"),
        ("l.map(params, params.a)", {("params", "a"): "1"}, "l.map(params, params.a)"),
        ("params.l.map(params, params.a)", {("params", "l"): "m"}, "m.map(params, params.a)"),
        ("l[params.a]", {("params", "a"): "0", ("l",): "m"}, "m[0]"),
        ("l.map(item, item + params.a)", {("params", "a"): "item.x"}, "l.map(item_, item_ + item.x)"),
        (
            "l.map(item, m.map(item_, item_ + item + params.a))",
            {("params", "a"): "item.x"},
            "l.map(item__, m.map(item_, item_ + item__ + item.x))",
        ),
        (
            "l.map(item, m.map(item, item + params.a))",
            {("params", "a"): "item.x"},
            "l.map(item_, m.map(item_, item_ + item.x))",
        ),
        ("{'k': params.a ? -params.a : !params.a}", {("params", "a"): "x"}, '{"k": x ? -x : !x}'),
        ("size(params.a) + params.a.size()", {("params", "a"): "x"}, "size(x) + x.size()"),
    ],
)
def test_replace(text: str, swap: dict[tuple[str, ...], str], result: str) -> None:
    assert show(replace(parse(text), {path: parse(new) for path, new in swap.items()})) == result


@examples(300)
@given(nodes)
def test_replacing_nothing_changes_nothing(node: Node) -> None:
    assert replace(node, {}) == node
    assert replace(node, {path: reference(*path) for path in references(show(node))}) == node


@examples(300)
@given(nodes)
def test_replaced_paths_are_gone(node: Node) -> None:
    swap = {path[:1]: Const(0) for path in references(show(node))}
    assert not references(show(replace(node, swap)))


@examples(200)
@given(st.lists(anything, min_size=1, max_size=4))
def test_a_reference_has_its_path(path: list[str]) -> None:
    node = reference("steps", *path)
    assert path_of(node) == ("steps", *path)
    assert path_of(parse(show(node))) == ("steps", *path)


@examples(200)
@given(nodes)
def test_a_rebuilt_tree_is_the_same_tree(node: Node) -> None:
    def again(part: Node) -> Node:
        return rebuild(part, again)

    assert again(node) == node
    seen: list[Node] = []
    rebuild(node, lambda part: seen.append(part) or part)
    assert seen == list(children(node)) or isinstance(node, Call)  # a method's subject comes first there, last here


@examples(200)
@given(nodes)
def test_children_are_all_there(node: Node) -> None:
    def constants_in(part: Node) -> list[str]:
        return (
            [repr(part)]
            if isinstance(part, Const | Name)
            else [one for child in children(part) for one in constants_in(child)]
        )

    assert all(one in repr(node) for one in constants_in(node))
    assert len(constants_in(node)) >= repr(node).count("Const(") - repr(node).count("Const(value='Const(")


def test_identifiers() -> None:
    assert [word for word in ("a", "_", "a1", "A_b") if not is_identifier(word)] == []
    assert [
        word for word in ("", "1a", "a-b", "a.b", "in", "true", "null", "for", "é", "a\n") if is_identifier(word)
    ] == []


# -- templates --------------------------------------------------------------------------------------------------------


@examples(1000)
@given(anything | st.text(alphabet="${} a\"'\\", max_size=16))
def test_every_text_survives_as_a_template(text: str) -> None:
    assert parse_template(show_template(text)) == text


@examples(500)
@given(templates() | template_expressions)
def test_every_template_survives(template: Template | Expr) -> None:
    assert parse_template(show_template(template)) == template


@examples(1500)
@given(
    st.lists(
        st.sampled_from(["$", "{", "}", "${{", "}}", "${{ a }}", '${{ "$" }}', "'", '"', "\\", " ", "x", "{}"]),
        max_size=10,
    ).map("".join)
)
def test_what_is_parsed_is_normal_and_survives(text: str) -> None:
    try:
        found = parse_template(text)
    except ExpressionError as error:
        assert 0 <= error.position <= len(text)
        return
    if isinstance(found, Template):
        kinds = [isinstance(part, str) for part in found.parts]
        assert len(kinds) > 1
        assert not all(kinds)
        assert all(found.parts)
        assert not any(one and two for one, two in zip(kinds, kinds[1:], strict=False))
    assert parse_template(show_template(found)) == found


@pytest.mark.parametrize(
    "text, parts",
    [
        ("a ${{ x }} b", ("a ", Expr("x"), " b")),
        ("${{x}}${{ y }}", (Expr("x"), Expr("y"))),
        ('$${{ x }}${{ {"a": {"b": "}}"}}.a }}', ("${{ x }}", Expr('{"a": {"b": "}}"}}.a'))),
        ('cost: ${{ "$" }}${{ x }}', ("cost: $", Expr("x"))),
        ("${{ x }}}}", (Expr("x"), "}}")),
        ("${{ '}}' + x }}!", (Expr('"}}" + x'), "!")),
    ],
)
def test_templates(text: str, parts: tuple[str | Expr, ...]) -> None:
    assert parse_template(text) == Template(parts)


@pytest.mark.parametrize(
    "text, whole", [("${{ x }}", Expr("x")), ("x", "x"), ("$${{", "${{"), ('${{ "x" }}', "x"), ("}} {{ $", "}} {{ $")]
)
def test_templates_of_one_part_are_that_part(text: str, whole: str | Expr) -> None:
    assert parse_template(text) == whole


@pytest.mark.parametrize(
    "text, position",
    [
        ("${{ a + }}", 7),
        ("abc ${{   @ }}", 10),
        ("ab ${{ x", 3),
        ("${{ 'x }}", 0),
        ("${{}}", 3),
        ("a ${{ x }} ${{ f(x) }}", 15),
    ],
)
def test_a_mistake_in_a_template_has_its_place_in_the_whole_text(text: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_template(text)
    assert caught.value.position == position


@examples(200)
@given(constants)
def test_only_text_dissolves_in_a_template(constant: Const) -> None:
    found = parse_template(f"${{{{ {show(constant)} }}}}")
    assert found == (constant.value if isinstance(constant.value, str) else Expr.tree(constant))
