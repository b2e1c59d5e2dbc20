"""The lists of queues, as commands obey them: `access:` beside Kueue's objects, and YuniKorn's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_yunikorn import flow

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: lab}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: shared}
spec:
  cohortName: lab
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: default, resources: [{name: cpu, nominalQuota: 4}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team-a}
spec: {clusterQueue: shared}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team-b}
spec: {clusterQueue: shared}
---
access:
  root: {adminacl: "ann"}
  lab: {adminacl: "leo"}
  team-a: {submitacl: "sue"}
  team-b: {submitacl: "*"}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "queues.yaml").write_text(QUEUES)
    monkeypatch.setenv("LOGNAME", "ann")
    return tmp_path


def test_who_is_in_no_list_of_the_queue_or_above_may_not_submit(
    penstock: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert penstock("queue", "apply", "queues.yaml").code == 0
    may = {"sue": ("team-a", "team-b"), "eve": ("team-b",), "leo": ("team-a", "team-b", "shared")}
    for person, open_to in may.items():
        monkeypatch.setenv("LOGNAME", person)
        for queue in ("team-a", "team-b", "shared"):
            said = penstock("plan", flow(here, queue))
            assert ("warning[P825]" in said.err) == (queue not in open_to), (person, queue, said.err)
    monkeypatch.setenv("LOGNAME", "eve")
    refused = penstock("run", flow(here, "team-a"))
    assert refused.code == 2 and "error[P825]: user 'eve'" in refused.err
    assert "submitacl of root.lab.shared.team-a: 'sue'" in refused.err and "adminacl of root: 'ann'" in refused.err


def test_only_administrators_stop_a_queue_and_only_those_of_the_root_change_it(
    penstock: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock("queue", "apply", "queues.yaml")
    monkeypatch.setenv("LOGNAME", "sue")
    for words in (("drain", "team-a"), ("resume", "shared"), ("delete", "team-b"), ("delete", "--all")):
        said = penstock("queue", *words)
        assert said.code == 2 and "error[P828]: user 'sue' may not" in said.err, words
    said = penstock("queue", "apply", "queues.yaml")
    assert said.code == 2 and "error[P828]" in said.err
    monkeypatch.setenv("LOGNAME", "leo")
    assert penstock("queue", "drain", "team-a").code == 0 and penstock("queue", "resume", "team-a").code == 0
    assert penstock("queue", "apply", "queues.yaml").code == 2
    monkeypatch.setenv("LOGNAME", "ann")
    assert penstock("queue", "apply", "queues.yaml").code == 0
    assert penstock("queue", "delete", "--all").code == 0
    monkeypatch.setenv("LOGNAME", "sue")
    assert penstock("queue", "apply", "queues.yaml").code == 0  # nobody says anything any more


def test_a_run_brings_no_queues_of_its_own_where_others_administer_them(
    penstock: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock("queue", "apply", "queues.yaml")
    monkeypatch.setenv("LOGNAME", "sue")
    (here / "mine.yaml").write_text(QUEUES.replace("nominalQuota: 4", "nominalQuota: 400"))
    said = penstock("run", flow(here, "team-a"), "--queues", "mine.yaml")
    assert said.code == 2 and "error[P828]" in said.err
    assert penstock("run", flow(here, "team-a")).code == 0


def test_runs_of_others_are_theirs_and_the_administrators(
    penstock: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock("queue", "apply", "queues.yaml")
    monkeypatch.setenv("LOGNAME", "sue")
    path = Path(flow(here, "team-a"))
    path.write_text(path.read_text().replace("echo done", "exit 1"))
    assert penstock("run", str(path)).code == 3
    monkeypatch.setenv("LOGNAME", "eve")
    for verb in ("retry", "resume", "cancel"):
        said = penstock(verb, "work-1")
        assert said.code == 2 and "error[P828]: user 'eve' may not" in said.err and "it is of sue" in said.err, verb
    for person in ("sue", "leo"):
        monkeypatch.setenv("LOGNAME", person)
        assert penstock("retry", "work-1").code == 3  # it fails again


def test_the_lists_are_shown(penstock: Any, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    penstock("queue", "apply", "queues.yaml")
    monkeypatch.setenv("LOGNAME", "sue")
    rows = {one["queue"]: one for one in json.loads(penstock("queue", "access", "-o", "json").out)}
    assert rows["team-a"]["submit"] and not rows["team-a"]["admin"] and not rows["shared"]["submit"]
    assert rows["shared"]["lists"] == ["adminacl of root: 'ann'", "adminacl of root.lab: 'leo'"]
    assert "team-a" in penstock("queue", "access").out


def test_lists_for_queues_that_there_are_not_are_refused(penstock: Any, here: Path) -> None:
    (here / "queues.yaml").write_text(QUEUES.replace("  team-b: {", "  team-x: {"))
    said = penstock("queue", "apply", "queues.yaml")
    assert said.code == 2 and "error[P827]: access has lists for 'team-x'" in said.err and "Did you mean" in said.err


def test_administrators_of_yunikorns_queues_count_too(
    penstock: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.cli.test_yunikorn import QUEUES as YUNIKORN

    (here / "queues.yaml").write_text(YUNIKORN.replace('submitacl: "ann"', 'submitacl: "ann"\n    adminacl: "ann"'))
    penstock("queue", "apply", "queues.yaml")
    monkeypatch.setenv("LOGNAME", "sue")
    assert "error[P828]" in penstock("queue", "drain", "root.lab.ray").err
    monkeypatch.setenv("LOGNAME", "ann")
    assert penstock("queue", "drain", "root.lab.ray").code == 0
