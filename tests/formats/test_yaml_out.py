"""What is written is read back equal, by PyYAML in both of its forms, and is a pleasure to read."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DocumentError
from penstock.formats.yaml_writer import dump, dump_all
from tests.support.speed import within

_LINES = st.lists(st.text(alphabet=" \tab#:-|>'\"{[\\é\x85\u2028\ufeff\r", max_size=6), max_size=6).map("\n".join)
_TEXT = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), _LINES)
_SCALAR = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _TEXT)
_DATA = st.recursive(
    _SCALAR,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXT, inner, max_size=4)),
    max_leaves=12,
)

TRAPS = (
    *"yes no on off y n Yes NO On OFF true False null ~ Null".split(),
    *"0x1f 0o17 017 0b11 1e3 1.5e3 1e+3 .5 +1 -1 1_000 12:30:45 190:20:30 2024-01-01 2024-01-01T00:00:00Z .inf -.inf .nan".split(),
    *(
        "<<",
        "=",
        "-",
        "- a",
        "?",
        "? a",
        ":",
        ": a",
        "a: b",
        "a:",
        "a #b",
        "#a",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "%a",
        "@a",
        "`a",
    ),
    *(
        "{a}",
        "[a]",
        "{{=item}}",
        '{"a":1}',
        "'",
        '"',
        "it's",
        '"quoted"',
        "\\",
        "a\\b",
        "",
        " ",
        " a",
        "a ",
        "a  b",
        "---",
        "...",
    ),
    *(
        "\n",
        "\n\n",
        "a\n",
        "a\n\n",
        "a\nb",
        " a\nb",
        "\ta\nb",
        "a\n b",
        "a\n  ",
        "a\n\t\nb",
        "\na",
        "a\r\nb",
        "a\n# b",
        "a\n---\nb",
    ),
    *(
        "\0",
        "\x07",
        "\x1b",
        "\x7f",
        "\x80",
        "\x85",
        "\xa0",
        "\u2028",
        "\u2029",
        "\ufeff",
        "\ufffe",
        "\uffff",
        "😀",
        "é",
        "日本",
        "a\x85b",
        "\x1b\n",
        "\x7f\na",
        "\ufeff\na",
    ),
)


@pytest.mark.parametrize("text", TRAPS)
def test_traps(text: str) -> None:
    for data in (text, [text], {text: text}, {"a": [text, {"b": text}], "c": [[text]]}):
        assert yaml.safe_load(dump(data)) == data
        assert yaml.load(dump(data), yaml.CSafeLoader) == data


@given(_DATA)
@settings(max_examples=400, deadline=None)
def test_whatever_is_written_is_read_back(data: Any) -> None:
    text = dump(data)
    assert yaml.safe_load(text) == data
    assert yaml.load(text, yaml.CSafeLoader) == data


@given(st.lists(_DATA, max_size=4))
@settings(max_examples=100, deadline=None)
def test_several_documents(documents: list[Any]) -> None:
    assert list(yaml.safe_load_all(dump_all(documents))) == documents or not documents


def test_it_reads_well() -> None:
    data = {
        "apiVersion": "argoproj.io/v1alpha1",
        "metadata": {"name": "x", "labels": {}},
        "spec": {
            "templates": [
                {
                    "name": "a",
                    "script": {
                        "image": "python:3.12",
                        "source": "import sys\n\nprint(1)\n",
                        "args": ["{{x}}", "1", "on"],
                    },
                },
                {"name": "b", "when": '"a" == "b"', "count": 3, "memory": "4Gi", "list": [[1, 2], []]},
            ]
        },
    }
    assert dump(data) == (
        "apiVersion: argoproj.io/v1alpha1\n"
        "metadata:\n"
        "  name: x\n"
        "  labels: {}\n"
        "spec:\n"
        "  templates:\n"
        "  - name: a\n"
        "    script:\n"
        "      image: python:3.12\n"
        "      source: |\n"
        "        import sys\n"
        "\n"
        "        print(1)\n"
        "      args:\n"
        '      - "{{x}}"\n'
        '      - "1"\n'
        '      - "on"\n'
        "  - name: b\n"
        '    when: \'"a" == "b"\'\n'
        "    count: 3\n"
        "    memory: 4Gi\n"
        "    list:\n"
        "    - - 1\n"
        "      - 2\n"
        "    - []\n"
    )


def test_numbers_stay_numbers() -> None:
    for value in (1e300, 1e-7, -2.5e22, 0.1, 1.0, -0.0, math.inf, -math.inf, 10**40, True, False):
        read = yaml.safe_load(dump([value]))[0]
        assert read == value and type(read) is type(value)


def test_long_keys() -> None:
    data = {"k" * 3000: 1, "z\n" * 800: {"a": [1]}, "b": 2}
    assert yaml.safe_load(dump(data)) == data


def test_half_a_character_is_refused() -> None:
    with pytest.raises(DocumentError, match="P840"):
        dump({"a": "x\ud800"})


def test_deep_is_fine_and_too_deep_is_said() -> None:
    data: Any = "x"
    for level in range(190):
        data = {"a": data} if level % 2 else [data]
    assert yaml.load(dump(data), yaml.CSafeLoader) == data
    for _ in range(30):
        data = [data]
    with pytest.raises(DocumentError, match="P840"):
        dump(data)


def test_it_is_fast() -> None:
    """Several megabytes, as a workflow of 10,000 tasks is."""
    tasks = [
        {
            "name": f"step-{i}",
            "template": f"t{i % 50}",
            "depends": f"step-{i - 1} && step-{i // 2}",
            "arguments": {
                "parameters": [
                    {"name": "x", "value": f"{{{{tasks.step-{i - 1}.outputs.parameters.y}}}}"},
                    {"name": "n", "value": str(i)},
                ]
            },
        }
        for i in range(10_000)
    ]
    with within(1.5):
        text = dump({"spec": {"templates": [{"name": "main", "dag": {"tasks": tasks}}]}})
    assert len(text) > 1_500_000
    assert yaml.load(text, yaml.CSafeLoader)["spec"]["templates"][0]["dag"]["tasks"] == tasks
