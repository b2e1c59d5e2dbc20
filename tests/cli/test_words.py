"""Words on screens that people stumbled over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.errors import known_are
from penstock.service.wording import remedies
from tests.cli.conftest import Result

Penstock = Callable[..., Result]

ARGO = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: w, labels: {kueue.x-k8s.io/queue-name: q}}
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: a, template: leaf}
  - name: leaf
    container: {image: busybox, command: [WORDS], resources: {requests: {cpu: "1"}}}
"""


def test_gate_says_that_something_must_open_the_gates(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(ARGO.replace("WORDS", "echo"))
    found = penstock("gate", "w.yaml")
    assert found.code == 0 and "something must open these gates" in found.err
    assert "controller of Penstock needs no gates written" in " ".join(found.err.split())
    assert "must open" not in penstock("gate", "w.yaml", "-q").err
    job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}\n"
    (tmp_path / "job.yaml").write_text(job)
    assert "must open" not in penstock("gate", "job.yaml").err  # Kueue lets it go
    (tmp_path / "idle.yaml").write_text(job.replace(", resources: {requests: {cpu: 1}}", ""))
    idle = penstock("gate", "idle.yaml")
    assert idle.code == 0 and "asks for resources" in idle.err and "suspend" not in idle.out


def test_a_name_that_resembles_nothing_where_nothing_is_known() -> None:
    assert known_are([]) == "remove it, or declare it first: nothing of the kind is known here"
    assert known_are(["a", "b"]) == "known are a, b" and known_are(map(str, range(12))).endswith("9 and 2 more")


def test_what_is_different_here_is_listed(penstock: Penstock, tmp_path: Path) -> None:
    odd = "  - name: leaf\n    retryStrategy: {limit: 1, retryPolicy: OnTransientError}\n"
    (tmp_path / "w.yaml").write_text(ARGO.replace("WORDS", "'true'").replace("  - name: leaf\n", odd))
    found = penstock("run", "w.yaml", "--on", "container=process")
    assert found.code == 0
    _, said, rest = found.err.partition("one thing is different here:\n")
    assert said and "every error counts as transient" in rest.splitlines()[0]


def test_cancel_does_not_say_for_good_and_then_retry(penstock: Penstock) -> None:
    text = penstock("cancel", "--help").out
    assert "for good" not in text and "penstock retry RUN" in text


def held(*holders: tuple[str, int], asked: int = 2000, available: int = 0) -> list[str]:
    short = {
        "kind": "quota",
        "resource": "cpu",
        "flavor": "f",
        "asked": asked,
        "available": available,
        "most": 9000,
        "holders": [{"workload": f"default/{name}", "amount": amount} for name, amount in holders],
        "enough": [f"default/{holders[0][0]}"],
    }
    return remedies({"why": "quota", "short": [short]}, "me")


def test_why_names_all_of_which_any_one_would_do() -> None:
    assert held(("a-1/x", 2000), ("b-1/x", 3000)) == [
        "it can start when any one of a-1/x or b-1/x ends or releases quota"
    ]
    assert held(("a-1/x", 2000), ("b-1/x", 1000)) == ["it can start when a-1/x ends or releases quota"]
    assert held(("a-1/x", 1000), ("b-1/x", 1000), asked=2000, available=1000) == [
        "it can start when any one of a-1/x or b-1/x ends or releases quota"
    ]


def test_what_was_errored_as_soon_as_it_was_looked_at_could_not_be_run(penstock: Penstock, tmp_path: Path) -> None:
    """`run` said that it failed, `show` that it could not be run."""
    (tmp_path / "flow.yaml").write_text(
        "apiVersion: penstock/v1\nkind: Workflow\nname: flow\nparams: [{name: xs, type: 'list[int]', default: []}]\n"
        "steps:\n- {name: a, script: {source: 'echo ${{ inputs.x }}'}, inputs: [{name: x, value: '${{ params.xs[3] }}'}]}\n"
        "- {name: b, script: {source: 'true'}, each: {axes: [{i: '${{ range(params.xs[0]) }}'}]}}\n"
    )
    found = penstock("run", "flow.yaml")
    assert found.code == 3
    for name in "ab":
        assert f"✗ {name} could not be run: " in found.err
        assert f"✗ {name} could not be run: " in penstock("show", "@").out
