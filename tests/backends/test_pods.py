"""Who runs when in a pod, what a part reads of earlier ones, and where it prints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.pods.log import PodLog
from penstock.backends.pods.parts import LARGEST_RESULT, as_texts, read_small, script_words
from penstock.backends.pods.sequence import PodFailure, PodSequence
from penstock.expressions.types import parse
from penstock.graph.model import Output, Part, Pod, Step
from tests.backends.harness import spec_of


def part(name: str, **more: Any) -> Part:
    return as_texts(
        Part(name=name, **{"command": ("true",), **more}),
        lambda value: value if isinstance(value, str) else json.dumps(value),
    )


def sequence(*parts: Part, files: dict[str, str] | None = None) -> PodSequence:
    return PodSequence(parts, lambda part, path: (files or {}).get(path), lambda name: f"/codes/{name}")


def names(found: PodSequence) -> list[str]:
    return [one.name for one in found.next()]


def test_parts_run_one_after_another_and_sidecars_beside_them() -> None:
    pod = sequence(part("a"), part("proxy", sidecar=True), part("b"))
    assert names(pod) == ["proxy", "a"] and names(pod) == [] and not pod.over
    pod.ended("a", 0)
    assert names(pod) == ["b"]
    pod.ended("proxy", 1)
    assert not pod.over
    pod.ended("b", 0)
    assert names(pod) == [] and pod.over and pod.failure is None


def test_needs_let_parts_run_side_by_side() -> None:
    pod = sequence(part("a"), part("b", needs=()), part("c", needs=("a", "b")), part("d"))
    assert names(pod) == ["a", "b"]
    pod.ended("b", 0)
    assert names(pod) == []
    pod.ended("a", 0)
    assert names(pod) == ["c"]
    pod.ended("c", 0)
    assert names(pod) == ["d"]


def test_the_first_failure_ends_it_and_a_later_one_changes_nothing() -> None:
    pod = sequence(part("a"), part("b", needs=()), part("c"))
    assert names(pod) == ["a", "b"]
    pod.ended("b", 3)
    pod.ended("a", 4)
    assert names(pod) == [] and pod.over and pod.failure == PodFailure("b", 3)


def test_a_part_may_fail_if_it_says_so_but_not_by_running_out_of_time() -> None:
    pod = sequence(part("a", on_error="continue"), part("b", on_error="continue", timeout=2.5))
    names(pod)
    pod.ended("a", 7)
    assert names(pod) == ["b"]
    pod.ended("b", -15, timed_out=True)
    assert pod.failure == PodFailure("b", -15, "timed out after 2.5 s")


def test_parts_that_wait_for_each_other_do_not_hang() -> None:
    pod = sequence(part("a", needs=("b",)), part("b", needs=("a",)))
    assert names(pod) == [] and pod.over and pod.failure is not None


@pytest.mark.parametrize(
    ("when", "runs"),
    [
        ({"input": "x", "operator": "in", "values": ["y", "x"]}, True),
        ({"input": "x", "operator": "in", "values": []}, False),
        ({"input": "x", "operator": "notin", "values": ["y"]}, True),
        ({"input": "x", "operator": "notin", "values": ["x"]}, False),
        ({"input": "$(steps.a.results.one)", "operator": "in", "values": ["1"]}, True),
        ({"input": "b", "operator": "in", "values": ["$(steps.a.results.many[*])"]}, True),
        ({"input": "$(steps.a.results.many[1])", "operator": "notin", "values": ["b"]}, False),
        ({"input": 3, "operator": "in", "values": 3}, True),
    ],
)
def test_a_condition_is_looked_at_when_the_turn_has_come(when: dict[str, Any], runs: bool) -> None:
    first = part("a", results={"one": "/one", "many": "/many"})
    pod = sequence(first, part("b", when=(when,)), part("c"), files={"/one": "1\n", "/many": '["a", "b"]'})
    assert names(pod) == ["a"]
    pod.ended("a", 0)
    assert names(pod) == (["b"] if runs else ["c"])
    assert pod.skipped == ([] if runs else ["b"])


FILES = {
    "/text": "some text\n\n",
    "/list": '["x y", 2, {"k": null}]',
    "/map": '{"k": "v", "deep": {"n": 1.5}, "a.b": "dot"}',
    "/bad": "{",
}
RESULTS = {name.strip("/"): name for name in FILES} | {"none": "/none", "dotted.name": "/text"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<$(steps.a.results.text)>", "<some text\n>"),
        ("$(steps.a.results.list)", FILES["/list"]),
        ("$(steps.a.results.list[0])-$(steps.a.results.list[1])", "x y-2"),
        ("$(steps.a.results.list[2])", '{"k":null}'),
        ("$(steps.a.results.list[2].k)", "null"),
        ("$(steps.a.results.map.k)$(steps.a.results.map.deep.n)", "v1.5"),
        ("""$(steps.a.results.map["a.b"])$(steps['a'].results["dotted.name"])""", "dotsome text\n"),
        ("all: $(steps.a.results.list[*])", f"all: {FILES['/list']}"),
        ("$(steps.a.exitCode.path) $(steps.step-a.exitCode.path)", "/codes/a /codes/a"),
        ("$(steps.nobody.results.text) $(steps) $(steps.a) $(steps.a.other.x) $(ls)", None),
        ("$(steps.a.results)", None),
    ],
)
def test_what_a_part_reads_is_put_into_its_texts(text: str, found: str | None) -> None:
    pod = sequence(
        part("a", results=RESULTS),
        part("b", command=("x", text), args=(text,), source=text, env={"E": text}, workdir=text),
        files=FILES,
    )
    names(pod)
    pod.ended("a", 0)
    [second] = pod.next()
    wanted = text if found is None else found
    assert (second.command, second.args, second.source, second.env, second.workdir) == (
        ("x", wanted),
        (wanted,),
        wanted,
        {"E": wanted},
        wanted,
    )


def test_all_elements_become_as_many_words() -> None:
    pod = sequence(part("a", results=RESULTS), part("b", args=("-", "$(steps.a.results.list[*])", "-")), files=FILES)
    names(pod)
    pod.ended("a", 0)
    [second] = pod.next()
    assert second.args == ("-", "x y", "2", '{"k":null}', "-")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("$(steps.a.results.none)", "part a has not written its result 'none' to /none"),
        ("$(steps.a.results.other)", "part a declares no result 'other'"),
        ("$(steps.a.results.list[3])", "the result 'list' of part a has no '3'"),
        ("$(steps.a.results.map.x)", "the result 'map' of part a has no 'x'"),
        ("$(steps.a.results.bad.x)", "the result 'bad' of part a has no 'x'"),
        ("$(steps.a.results.map[*])", "the result 'map' of part a is not a JSON array"),
    ],
)
def test_what_is_not_there_is_a_failure_of_who_reads_it(text: str, message: str) -> None:
    pod = sequence(part("a", results=RESULTS), part("b", args=(text,)), files=FILES)
    names(pod)
    pod.ended("a", 0)
    assert names(pod) == [] and pod.failure == PodFailure("b", None, message)


def test_what_was_put_in_is_not_looked_at_again() -> None:
    pod = sequence(
        part("a", results={"x": "/x"}), part("b", args=("$(steps.a.results.x)",)), files={"/x": "$(steps.a.results.x)"}
    )
    names(pod)
    pod.ended("a", 0)
    assert [one.args for one in pod.next()] == [("$(steps.a.results.x)",)]


def test_scripts_are_run_by_what_their_first_line_says() -> None:
    found = {
        "echo": ["sh", "/f", "x"],
        "#!/bin/bash -e\necho": ["/bin/bash", "-e", "/f", "x"],
        "#! /usr/bin/env  python3 -u \r\n": ["/usr/bin/env", "python3 -u", "/f", "x"],
        "#!\n": ["sh", "/f", "x"],
    }
    for source, words in found.items():
        assert script_words(Part(name="a", source=source, args=("x",)), "/f") == words
    assert script_words(Part(name="a", source="1", command=("python3", "-u")), "/f") == [
        "python3",
        "-u",
        "/f",
    ]


def test_results_are_read_with_care(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret").write_text("s")
    (folder / "good").write_text("fine")
    (folder / "inner").symlink_to("good")
    (folder / "outer").symlink_to(tmp_path / "secret")
    (folder / "large").write_bytes(b"x" * (LARGEST_RESULT + 1))
    (folder / "binary").write_bytes(b"\xff")
    os.mkfifo(folder / "pipe")
    assert read_small(folder / "good", folder) == read_small(folder / "inner", folder) == "fine"
    assert read_small(folder / "none", folder) is None and read_small(folder / "good" / "x") is None
    assert read_small(folder / "outer") == "s"
    for name, why in [("outer", "link"), ("large", "larger"), ("binary", "not text"), ("pipe", "not a file")]:
        with pytest.raises(ValueError, match=why):
            read_small(folder / name, folder)
    with pytest.raises(ValueError, match="not a file|directory"):
        read_small(folder, folder)


# -- the log ----------------------------------------------------------------------------------------------------------


def printed(
    home: Path, parts: list[Part], said: dict[str, tuple[str, str]], output: bool = False
) -> tuple[str, list[str]]:
    """What a log says in which part `name` prints (stdout, stderr), and the files of it."""
    outputs = (Output(name="o", type=parse("str"), path="/dev/stdout"),) if output else ()
    spec = spec_of(Step(name="s", action=Pod(parts=tuple(parts)), outputs=outputs))
    log = PodLog(home, spec, 0, parts)
    (home / log.err).parent.mkdir(parents=True, exist_ok=True)
    for one in parts:
        for name, text in zip(log.open(one.name), said.get(one.name, ("", "")), strict=True):
            with open(home / name, "a") as file:
                file.write(text)
    found = log.close()
    return "".join((home / name).read_bytes()[start:end].decode() for name, start, end in found), [
        name for name, _, _ in found
    ]


def test_each_part_prints_below_its_name(tmp_path: Path) -> None:
    text, files = printed(tmp_path, [part("a"), part("b"), part("c")], {"a": ("1\n", "2"), "c": ("3\n", "")})
    assert text == "[a]\n1\n2\n[b]\n[c]\n3\n" and files == ["logs/test-1/s.1.log"]


def test_one_part_alone_has_no_name_in_front(tmp_path: Path) -> None:
    assert printed(tmp_path, [part("a")], {"a": ("1\n", "2\n")})[0] == "1\n2\n"


def test_nothing_printed_leaves_no_log(tmp_path: Path) -> None:
    assert printed(tmp_path, [part("a"), part("b")], {})[1] == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_is_an_output_is_kept_apart_and_shown_in_its_place(tmp_path: Path) -> None:
    parts = [part("a"), part("main"), part("c")]
    text, files = printed(
        tmp_path, parts, {"a": ("1\n", ""), "main": ("out\n", "err\n"), "c": ("3\n", "")}, output=True
    )
    assert text == "[a]\n1\n[main]\nout\nerr\n[c]\n3\n"
    assert files == ["logs/test-1/s.1.log", "logs/test-1/s.1.out", "logs/test-1/s.1.log"]
    assert printed(tmp_path / "2", parts, {"main": ("out\n", "")}, output=True)[0] == "[a]\n[main]\nout\n[c]\n"
    assert printed(tmp_path / "3", [part("x"), part("y")], {"y": ("out\n", "")}, output=True)[0] == "[x]\n[y]\nout\n"


def test_parts_that_run_side_by_side_have_files_of_their_own(tmp_path: Path) -> None:
    parts = [part("side", sidecar=True), part("a"), part("b", needs=())]
    text, files = printed(tmp_path, parts, {"a": ("1\n", ""), "b": ("2\n", ""), "side": ("s\n", "")}, output=True)
    assert text == "[a]\n1\n[b]\n2\n[side]\ns\n"
    assert files == [f"logs/test-1/s.1.{name}" for name in ("part-a.log", "part-b.log", "out", "part-side.log")]
