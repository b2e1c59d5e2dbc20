"""Usage of runs and the list of flows, on both databases."""

from __future__ import annotations

from penstock.store.sql import Store
from penstock.store.usage import KEPT, RunUsage
from tests.store.work import new_run


def test_usage_is_missing_until_it_is_kept_and_again_when_the_run_has_grown(store: Store) -> None:
    run = new_run(store)
    assert store.usage.missing(0.0, run.created + 1) == [run.number] and store.usage.missing(0.0, run.created - 1) == []
    row = RunUsage(run.number, run.seq, run.created, None, run.user, run.workflow, "{}")
    store.usage.put([row])
    assert store.usage.between(run.created, run.created + 1) == [row]
    assert store.usage.missing(0.0, run.created + 1) == [] and store.usage.between(0.0, run.created) == []
    later = row._replace(seq=run.seq - 1, ended=run.created + 5, document="[]")
    store.usage.put([later])
    assert store.usage.missing(0.0, run.created + 1) == [run.number]
    assert store.usage.between(run.created + 6, run.created + 9) == []
    store.usage.forget(run.created + KEPT + 10)
    assert store.usage.between(run.created, run.created + 1) == [later], "of a run that is there"
    store.usage.put([later._replace(run=999)])
    store.usage.forget(run.created + KEPT + 10)
    assert store.usage.between(run.created, run.created + 1) == [later]


def test_flows_by_name(store: Store) -> None:
    runs = [new_run(store, name) for name in ("train", "eval", "train", "a_b")]
    assert store.runs.flows(10) == [
        ("a_b", 1, runs[3].number),
        ("eval", 1, runs[1].number),
        ("train", 2, runs[2].number),
    ]
    assert [name for name, *_ in store.runs.flows(1, after="a_b")] == ["eval"]
    assert [name for name, *_ in store.runs.flows(10, find="ra")] == ["train"]
    assert store.runs.many_of("train") == 2 and store.runs.many_of("x") == 0
