"""Chains that payloads carry, `process: [A, [B1, B2], C]`: branches, filters, what is appended on the way, joins (T4.1, T4.3, T4.4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.errors import UserError
from penstock.graph.model import Workflow
from penstock.service import stores
from penstock.service.payloads import verbs
from penstock.service.payloads.process import definitions, handed_on
from penstock.service.payloads.submit import PayloadRequest, SubmittedPayload, submit
from penstock.service.policy import Actor
from penstock.service.submission import Submission
from penstock.service.views.lineage import lineage
from penstock.settings import Settings
from penstock.store.sql import Store
from tests.integrator.chains import deliver, end, runs_of, settings_of, states
from tests.integrator.payloads import flow

NAMES = ("a", "b1", "b2", "c", "d")
KNOWN = tuple(flow(name, include=(".features[].id",)) for name in NAMES)
FLOW: Workflow = replace(KNOWN[0], definitions=KNOWN[1:])
SCENES = [{"id": "s1", "cloud": 5}, {"id": "s2", "cloud": 50}]


@pytest.fixture
def settings(where: str, tmp_path: Path) -> Settings:
    return settings_of(tmp_path / ".penstock", where)


def payload(*process: Any) -> dict[str, Any]:
    def one(given: Any) -> Any:
        return (
            {"workflow": given} if isinstance(given, str) else [*map(one, given)] if isinstance(given, list) else given
        )

    return {"id": "scene", "features": SCENES, "process": [*map(one, process)]}


def send(store: Store, settings: Settings, given: Any, workflow: Workflow = FLOW) -> SubmittedPayload:
    def prepare(params: Mapping[str, Any]) -> Submission:
        return Submission(workflow, params, person="ann", place="/")

    blobs: Blobs = stores.blobs_of(settings)
    return submit(store, blobs, workflow, PayloadRequest(payload=given), prepare)


def play(store: Store, settings: Settings, **outputs: Any) -> None:
    """All to their ends, those of `outputs` with these payloads."""
    while True:
        ready = [run for run in store.runs.newest() if run.state == "stopped"]
        for run in ready:
            said = {"payload": outputs[run.workflow]} if run.workflow in outputs else {}
            end(store, run.number, outputs=json.dumps(said))
        if not deliver(store, settings) and not ready:
            return


def given_to(store: Store, name: str) -> list[Any]:
    return [run.params["payload"] for run in runs_of(store)[name]]


def test_t4_1_the_process_of_a_payload_yields_its_runs_with_their_lineage(store: Store, settings: Settings) -> None:
    first = send(store, settings, payload("a", ["b1", "b2"], {"workflow": "c", "join": False}))
    play(store, settings)
    # As in Cirrus, each branch goes on by itself: five runs, but C works on the same payload twice, and once is enough.
    assert {name: len(runs) for name, runs in runs_of(store).items()} == {"a": 1, "b1": 1, "b2": 1, "c": 1}
    root = first.payload.run
    assert {one.root for runs in runs_of(store).values() for run in runs if (one := store.runs.origin(run.number))} == {
        root
    }
    assert [state.state for state in (store.runs.newest(workflow=name)[0] for name in NAMES[:4])] == ["succeeded"] * 4


def test_t4_1_branches_with_work_of_their_own_go_on_by_themselves_as_five_runs(
    store: Store, settings: Settings
) -> None:
    send(
        store,
        settings,
        payload(
            "a",
            [{"workflow": "b1", "chain_filter": "item.cloud < 20"}, {"workflow": "b2", "chain_filter": "@.cloud > 20"}],
            {"workflow": "c", "join": False},
        ),
    )
    play(store, settings)
    assert {name: len(runs) for name, runs in runs_of(store).items()} == {"a": 1, "b1": 1, "b2": 1, "c": 2}
    assert [[one["id"] for one in each["features"]] for each in given_to(store, "c")] in (
        [["s1"], ["s2"]],
        [["s2"], ["s1"]],
    )
    parents = {store.runs.origin(run.number).parent for run in runs_of(store)["c"]}  # type: ignore[union-attr]
    assert parents == {runs_of(store)[name][0].number for name in ("b1", "b2")}


def test_t4_1_a_filter_keeps_what_it_holds_for_and_with_nothing_left_the_branch_is_skipped(
    store: Store, settings: Settings
) -> None:
    nothing = {"workflow": "b1", "chain_filter": "item.cloud > 90"}
    some = {"workflow": "b2", "chain_filter": "item.cloud < 20"}
    first = send(store, settings, payload("a", [nothing, some], "c"))
    play(store, settings)
    assert states(store, first.payload.run) == {"b1": "skipped", "b2": "started", "c": "started"}
    assert given_to(store, "b2")[0]["features"] == SCENES[:1] == given_to(store, "c")[0]["features"]
    rows = {row["link"]: row for row in lineage(store, runs_of(store)["a"][0]).as_data()["links"]}
    assert rows["b1"]["why"] == "its chain_filter leaves no feature" and rows["b1"]["workflow"] == "b1"


def test_what_a_run_appends_to_the_process_is_done_too(store: Store, settings: Settings) -> None:
    send(store, settings, payload("a"))
    play(store, settings, a={**payload("a", "b1", "d"), "features": [{"id": "new"}]})
    assert {name: len(runs) for name, runs in runs_of(store).items()} == {"a": 1, "b1": 1, "d": 1}
    assert given_to(store, "d") == [{"id": "scene", "features": [{"id": "new"}], "process": [{"workflow": "d"}]}]


def test_t4_4_a_join_of_payloads_starts_once_with_the_features_of_all_branches(
    store: Store, settings: Settings
) -> None:
    first = send(store, settings, payload("a", ["b1", "b2"], "c", "d"))
    play(
        store,
        settings,
        b1={"features": [{"id": "s1", "by": 1}]},
        b2={"features": [{"id": "s2", "by": 2}, {"id": "s3", "by": 2}]},
    )
    assert {name: len(runs) for name, runs in runs_of(store).items()} == dict.fromkeys(NAMES, 1)
    (found,) = given_to(store, "c")
    assert [one["id"] for one in found["features"]] == ["s1", "s2", "s3"]
    assert [one["workflow"] for one in found["process"]] == ["c", "d"]
    assert states(store, first.payload.run) == {"b1": "started", "b2": "started", "c": "started"}


def test_t4_3_a_branch_that_is_driven_again_resumes_its_chain_with_a_new_attempt(
    store: Store, settings: Settings
) -> None:
    first = send(store, settings, payload("a", ["b1", "b2"], "c"))
    end(store, first.payload.run, outputs="{}")
    deliver(store, settings)
    end(store, runs_of(store)["b1"][0].number, "failed")
    end(store, runs_of(store)["b2"][0].number, outputs="{}")
    while deliver(store, settings):
        pass
    assert states(store, first.payload.run)["c"] == "omitted"
    again = verbs.redrive(store, settings, verbs.Selection(workflow="b1"), Actor("ann"))
    assert again.started == ["b1-2"]
    play(store, settings)
    assert {name: len(runs) for name, runs in runs_of(store).items()} == {"a": 1, "b1": 2, "b2": 1, "c": 1}
    assert states(store, first.payload.run)["c"] == "started"


@pytest.mark.parametrize("ended", [True, False])
def test_a_payload_that_has_its_run_already_is_not_worked_on_twice_and_the_chain_goes_on(
    ended: bool, store: Store, settings: Settings
) -> None:
    other = send(store, settings, {"features": SCENES}, KNOWN[2])
    if ended:
        end(store, other.payload.run, outputs="{}")
        deliver(store, settings)
    first = send(store, settings, payload("a", ["b1", "b2"], "c"))
    end(store, first.payload.run, outputs="{}")
    deliver(store, settings)
    end(store, runs_of(store)["b1"][0].number, outputs="{}")
    while deliver(store, settings):
        pass
    assert ("c" in runs_of(store)) is ended
    play(store, settings)
    assert {name: len(runs) for name, runs in runs_of(store).items()} == {"a": 1, "b1": 1, "b2": 1, "c": 1}


def test_a_workflow_that_was_run_before_is_found_by_its_name_and_an_unknown_one_is_said(
    store: Store, settings: Settings
) -> None:
    alone = replace(FLOW, definitions=())
    end(store, send(store, settings, {"features": [{"id": "x"}]}, KNOWN[1]).payload.run, outputs="{}")
    deliver(store, settings)
    first = send(store, settings, payload("a", ["b1", "nope"]), alone)
    play(store, settings)
    assert len(runs_of(store)["b1"]) == 2 and states(store, first.payload.run) == {"b1": "started", "nope": "dead"}
    assert store.links.of_head(first.payload.run)["nope"].why.startswith("P549")


def test_a_process_that_is_none_is_refused_at_submission_and_recorded_later(store: Store, settings: Settings) -> None:
    many = [{"workflow": "a"}, [{"workflow": "b1"}] * 1000]
    for wrong in (many, [], {"workflow": "a"}, [["a"]], [{"workflow": "a"}, []], [{"workflow": "a"}, {"flow": "b"}]):
        with pytest.raises(UserError, match="P549"):
            send(store, settings, {"features": SCENES, "process": wrong})
    first = send(store, settings, payload("a"))
    play(store, settings, a={"process": "b1"})
    assert states(store, first.payload.run) == {"process": "dead"}


def test_what_follows_is_a_pure_function_of_the_process() -> None:
    found = definitions(payload("a", ["b1", "b1"], ["c", "d"], "e"))
    assert [(one.link.name, one.link.after, len(one.process)) for one in found] == [
        ("b1", (), 1),
        ("b1-2", (), 1),
        ("c", ("b1", "b1-2"), 1),
        ("d", ("b1", "b1-2"), 1),
        ("e", ("c", "d"), 1),
    ]
    assert definitions(payload("a")) == []
    assert handed_on([{"k": 1, "features": [{"id": "x"}]}, {"k": 2, "m": 3}], [{"workflow": "w"}]) == {
        "k": 1,
        "m": 3,
        "features": [{"id": "x"}],
        "process": [{"workflow": "w"}],
    }
