"""The author's code, packed here and loaded in another process: it must be the same code, from whatever file it came."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.author.capture import live_functions
from penstock.author.load import load_graph
from penstock.author.pack import pack
from penstock.graph import model

RUN = """
import json, sys
from pathlib import Path
from penstock.artifacts.blobs import Blobs
from penstock.backends.local.loader import Loader
home, bundle, calls = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
loader = Loader(Blobs(home / "blobs"), home / "cache")
for module, name, code, place, inputs in calls:
    try:
        print(json.dumps(loader.function(bundle, module, name, code, place)(**inputs)))
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"))
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / (
            name.removesuffix("__init__").replace("__", "/") + "__init__" * name.endswith("__init__") + ".py"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


def elsewhere(home: Path, bundle: str, calls: list[tuple[Any, ...]]) -> list[Any]:
    """Calls functions in a process that knows nothing but the bundle."""
    arguments = [sys.executable, "-P", "-c", RUN, str(home), bundle, json.dumps(calls)]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd="/", timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def packed(home: Path, *graphs: model.Workflow) -> str:
    steps = tuple(step for graph in graphs for step in graph.steps)
    found = pack(model.Workflow(name="all", steps=steps))
    assert found is not None
    return Blobs(home / "blobs").put(found[0])


def call_of(graph: model.Workflow, step: int = 0, **inputs: Any) -> tuple[Any, ...]:
    action = graph.steps[step].action
    assert isinstance(action, model.Function)
    return action.module, action.name, action.code, "", inputs


def functions(graph: model.Workflow) -> list[str]:
    return [step.action.name for step in graph.steps if isinstance(step.action, model.Function)]


FLOW = """
    from penstock import task, workflow
    from helper import scale

    @task
    def work(x: int) -> int:
        import lazy.inside
        return scale(x) + lazy.inside.MORE

    @workflow
    def flow(x: int = 1):
        return work(x)
    """


def test_a_function_takes_its_neighbours_along_also_those_it_imports_late(tmp_path: Path) -> None:
    write(
        tmp_path / "src",
        flow=FLOW,
        helper="def scale(x): return x * 10\n",
        lazy____init__="",
        lazy__inside="MORE = 3\n",
    )
    graph = load_graph(tmp_path / "src" / "flow.py")
    bundle = packed(tmp_path, graph)
    os.rename(tmp_path / "src", tmp_path / "gone")
    assert elsewhere(tmp_path, bundle, [call_of(graph, x=2)]) == [23]


def test_the_bundle_is_the_same_every_time_and_has_nothing_installed_in_it(tmp_path: Path) -> None:
    write(
        tmp_path / "src",
        flow=FLOW,
        helper="import yaml, json\ndef scale(x): return x * 10\n",
        lazy____init__="",
        lazy__inside="MORE = 3\n",
    )
    one = pack(load_graph(tmp_path / "src" / "flow.py"))
    two = pack(load_graph(tmp_path / "src" / "flow.py"))
    assert one is not None and two is not None and one[0] == two[0]
    names = zipfile.ZipFile(BytesIO(one[0])).namelist()
    assert sorted(names) == ["0/flow.py", "0/helper.py", "0/lazy/__init__.py", "0/lazy/inside.py", "manifest.json"]


def test_code_that_was_changed_after_packing_runs_as_it_was_packed(tmp_path: Path) -> None:
    write(
        tmp_path / "src",
        flow=FLOW,
        helper="def scale(x): return x * 10\n",
        lazy____init__="",
        lazy__inside="MORE = 3\n",
    )
    graph = load_graph(tmp_path / "src" / "flow.py")
    bundle = packed(tmp_path, graph)
    write(tmp_path / "src", helper="def scale(x): return 0\n", lazy__inside="MORE = 0\n")
    assert elsewhere(tmp_path, bundle, [call_of(graph, x=2)]) == [23]


def test_files_of_the_same_name_with_neighbours_of_the_same_name_are_kept_apart(tmp_path: Path) -> None:
    graphs = []
    for number in (1, 2):
        folder = write(
            tmp_path / f"src{number}",
            flow=FLOW,
            helper=f"def scale(x): return {number}00\n",
            lazy____init__="",
            lazy__inside=f"MORE = {number}\n",
        )
        graphs.append(load_graph(folder / "flow.py"))
    bundle = packed(tmp_path, *graphs)
    calls = [call_of(graphs[0], x=1), call_of(graphs[1], x=1), call_of(graphs[0], x=1), call_of(graphs[1], x=1)]
    assert elsewhere(tmp_path, bundle, calls) == [101, 202, 101, 202]


def test_data_beside_the_module_is_found_where_it_is(tmp_path: Path) -> None:
    text = """
        from pathlib import Path
        from penstock import task, workflow

        @task
        def read() -> str:
            return Path(__file__).with_name("data.txt").read_text()

        @workflow
        def flow():
            return read()
        """
    graph = load_graph(write(tmp_path / "src", flow=text) / "flow.py")
    (tmp_path / "src" / "data.txt").write_text("precious")
    assert elsewhere(tmp_path, packed(tmp_path, graph), [call_of(graph)]) == ["precious"]


def test_packages_and_relative_imports(tmp_path: Path) -> None:
    write(
        tmp_path / "src",
        pkg____init__="BASE = 5\n",
        pkg__low="from . import BASE\nfrom .deep.more import X\ndef low(): return BASE + X\n",
        pkg__deep____init__="",
        pkg__deep__more="X = 1\n",
        space__thing="Y = 30\n",
        flow="""
            import pkg.low
            from space.thing import Y
            from penstock import task, workflow

            @task
            def work() -> int:
                return pkg.low.low() + Y

            @workflow
            def flow():
                return work()
            """,
    )
    graph = load_graph(tmp_path / "src" / "flow.py")
    bundle = packed(tmp_path, graph)
    os.rename(tmp_path / "src", tmp_path / "gone")
    assert elsewhere(tmp_path, bundle, [call_of(graph)]) == [36]


def test_functions_that_no_name_leads_to_travel_by_value(tmp_path: Path) -> None:
    text = """
        from penstock import FunctionJob, Workflow
        from helper import scale

        BASE = 1000

        def maker(n):
            def inner(x: int) -> int:
                return scale(x) + n + BASE
            return inner

        def job(x: int) -> int:
            return x + BASE

        job = FunctionJob("named", job, {"x": 1})
        flow = Workflow("flow", [FunctionJob("a", maker(1), {"x": 1}), FunctionJob("b", maker(2), {"x": 1}), job])
        """
    write(tmp_path / "src", flow=text, helper="def scale(x): return x * 10\n")
    graph = load_graph(tmp_path / "src" / "flow.py")
    calls = [call_of(graph, step, x=3) for step in range(3)]
    bundle = packed(tmp_path, graph)
    os.rename(tmp_path / "src", tmp_path / "gone")
    assert elsewhere(tmp_path, bundle, calls) == [1031, 1032, 1003]


def test_a_function_behind_a_decorator_of_another_module(tmp_path: Path) -> None:
    deco = """
        import functools

        def twice(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                return 2 * function(*args, **kwargs)
            return inner
        """
    text = """
        from deco import twice
        from penstock import task, workflow

        @task
        @twice
        def work(x: int) -> int:
            return x

        @workflow
        def flow(x: int = 1):
            return work(x)
        """
    graph = load_graph(write(tmp_path / "src", flow=text, deco=deco) / "flow.py")
    found = pack(graph)
    assert found is not None and "as" in found[1]["functions"][0]
    bundle = packed(tmp_path, graph)
    os.rename(tmp_path / "src", tmp_path / "gone")
    assert elsewhere(tmp_path, bundle, [call_of(graph, x=4)]) == [8]


def test_a_script_travels_by_value_and_its_neighbours_as_files(tmp_path: Path) -> None:
    text = """
        import dataclasses, json, sys
        from pathlib import Path
        from penstock import task, workflow
        from penstock.author.pack import pack
        from helper import scale

        FACTOR = 4

        @dataclasses.dataclass
        class Thing:
            n: int

        @task
        def work(x: int) -> int:
            return Thing(scale(x)).n * FACTOR

        @workflow
        def flow(x: int = 1):
            return work(x)

        data, manifest = pack(flow.graph)
        Path(sys.argv[1]).write_bytes(data)
        action = flow.graph.steps[0].action
        print(json.dumps([action.module, action.name, action.code]))
        """
    write(tmp_path / "src", script=text, helper="def scale(x): return x * 10\n")
    done = subprocess.run(
        [sys.executable, "src/script.py", "bundle.zip"], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 0, done.stderr
    bundle = Blobs(tmp_path / "blobs").put((tmp_path / "bundle.zip").read_bytes())
    os.rename(tmp_path / "src", tmp_path / "gone")
    assert elsewhere(tmp_path, bundle, [(*json.loads(done.stdout), "", {"x": 2})]) == [80]


def test_what_cannot_travel_is_said(tmp_path: Path) -> None:
    text = """
        import threading
        from penstock import FunctionJob, Workflow

        def maker():
            lock = threading.Lock()
            def inner() -> None:
                with lock: pass
            return inner

        flow = Workflow("flow", [FunctionJob("a", maker())])
        """
    from penstock.errors import AuthorError

    graph = load_graph(write(tmp_path, flow=text) / "flow.py")
    with pytest.raises(AuthorError, match="cannot be sent to a worker") as error:
        pack(graph)
    assert error.value.code == "P706"


def test_without_a_bundle_functions_are_found_from_the_place_of_the_run(tmp_path: Path) -> None:
    write(
        tmp_path / "src",
        mod="import near\ndef f(x): return near.N + x\nclass C:\n    @staticmethod\n    def g(): return 9\n",
        near="N = 1\n",
    )
    place = str(tmp_path / "src")
    calls = [("mod", "f", "", place, {"x": 1}), ("mod", "C.g", "", place, {}), ("math", "floor", "", "", {})]
    assert elsewhere(tmp_path, "", calls)[:2] == [2, 9]


def test_what_is_missing_is_named_with_the_way_out(tmp_path: Path) -> None:
    write(
        tmp_path / "src",
        mod="def work(): pass\n",
        needs="import surely_not_installed\n",
        breaks="1 / 0\n",
        deep="import needs\n",
    )
    place = str(tmp_path / "src")
    calls = [
        (module, name, "", place, {})
        for module, name in (
            ("nowhere", "f"),
            ("mod", "wurk"),
            ("needs", "f"),
            ("deep", "f"),
            ("breaks", "f"),
        )
    ]
    said = elsewhere(tmp_path, "", calls)
    assert all("P702" in line for line in said)
    assert "there is no module 'nowhere' here" in said[0] and place in said[0]
    assert "there is no function 'wurk' in module 'mod'" in said[1] and 'Did you mean "work"?' in said[1]
    assert "install 'surely_not_installed'" in said[2] and "install 'surely_not_installed'" in said[3]
    assert "ZeroDivisionError" in said[4]


def test_a_workflow_without_functions_has_no_bundle() -> None:
    graph = model.Workflow(name="w", steps=(model.Step(name="s", action=model.Script(source="true")),))
    assert pack(graph) is None and live_functions(graph) == {}


def test_the_functions_at_hand_are_those_of_the_workflow(tmp_path: Path) -> None:
    write(
        tmp_path / "src",
        flow=FLOW,
        helper="def scale(x): return x * 10\n",
        lazy____init__="",
        lazy__inside="MORE = 3\n",
    )
    graph = load_graph(tmp_path / "src" / "flow.py")
    (key,) = live_functions(graph)
    assert key[:2] == ("flow", "work") and functions(graph) == ["work"]


def test_many_processes_unpack_the_same_bundle_at_once(tmp_path: Path) -> None:
    write(
        tmp_path / "src",
        flow=FLOW,
        helper="def scale(x): return x * 10\n",
        lazy____init__="",
        lazy__inside="MORE = 3\n",
    )
    graph = load_graph(tmp_path / "src" / "flow.py")
    arguments = [
        sys.executable,
        "-P",
        "-c",
        RUN,
        str(tmp_path),
        packed(tmp_path, graph),
        json.dumps([call_of(graph, x=2)]),
    ]
    running = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd="/") for _ in range(6)]
    assert [process.communicate(timeout=60)[0] for process in running] == ["23\n"] * 6
    assert len(list((tmp_path / "cache" / "bundles").iterdir())) == 1
