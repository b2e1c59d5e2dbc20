"""Foreign formats at size: writing Argo YAML, split where it must be, and reading every example there is. The bare limits are PyYAML's own
dump (in C) of the same documents, and its own load of the same files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bench.measure import Figure, best
from bench.planning import random_dag
from penstock.formats.argo.read.workflow import read_argo
from penstock.formats.argo.write.workflow import write_argo
from penstock.formats.documents import Library, read_text
from penstock.formats.registry import read, roots
from penstock.formats.yaml_writer import dump_all
from penstock.graph.model import Container, Edge, Step, Workflow
from penstock.service.manifests import library_of, with_neighbours

CORPUS = Path(os.environ.get("PENSTOCK_CORPUS") or Path(__file__).resolve().parents[2] / "shared" / "corpus")
_dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def chain(size: int) -> Workflow:
    steps = [
        Step(
            name=f"s{i}",
            action=Container(image="busybox", command=("work", str(i))),
            needs=(Edge(f"s{i - 1}"),) if i else (),
            resources={"cpu": 1000},
        )
        for i in range(size)
    ]
    return Workflow(name="chain", steps=tuple(steps))


def text_of(workflow: Workflow) -> str:
    return dump_all(write_argo(workflow).documents)


def figures() -> Iterator[Figure]:
    for name, make in (("random DAG", random_dag), ("chain", chain)):
        costs = {}
        for size, bar, times in ((1_000, 0.5, 5), (10_000, 6.0, 2)):
            workflow = make(size)
            documents = write_argo(workflow).documents
            bare = best(lambda given=documents: yaml.dump_all(given, Dumper=_dumper), 1)
            costs[size] = best(lambda given=workflow: text_of(given), times)
            what = f"{name} of {size:,} steps to Argo YAML, {len(documents)} documents"
            yield Figure(what, costs[size], bar, bare=bare, bare_name="bare dump")
        yield Figure(f"  growth from 1,000 to 10,000 ({name})", costs[10_000] / costs[1_000], None, "×")
    text = text_of(random_dag(1_000))
    library = Library(tuple(read_text(text, "w.yaml")))
    root = roots(library)[0]
    yield Figure("1,000-step Argo workflow read back", best(lambda: read_argo(library, root), 3), None)
    if CORPUS.is_dir():
        yield corpus()


def corpus() -> Figure:
    texts = [
        (path, path.read_text())
        for name in ("argo", "tekton", "jobset")
        for path in sorted((CORPUS / name).rglob("*.yaml"))
    ]

    def ours() -> None:
        for path, _ in texts:
            own = library_of(path)
            library = with_neighbours(own, path)
            for document in roots(own):
                read(library, document)

    bare = best(lambda: [list(yaml.load_all(text, Loader=_loader)) for _, text in texts], 2)
    return Figure(
        f"all {len(texts)} example files read into workflows", best(ours, 2), 20.0, bare=bare, bare_name="bare load"
    )
