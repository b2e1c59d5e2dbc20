"""The public names, pinned: a change here is a change of the interface and belongs into the changelog."""

from __future__ import annotations

import subprocess
import sys

import penstock

PUBLIC = {
    "AnswerRule",
    "Answer",
    "ArgoRunner",
    "Backoff",
    "BaseJob",
    "Cache",
    "Callback",
    "CallbackRetry",
    "Chain",
    "Client",
    "ContainerJob",
    "FunctionJob",
    "InvalidInput",
    "JobSetRunner",
    "Link",
    "LocalRunner",
    "Outcome",
    "PayloadIdentity",
    "PenstockError",
    "ResourceJob",
    "Retry",
    "Run",
    "RunFailed",
    "ScriptJob",
    "TektonRunner",
    "Toleration",
    "Unit",
    "Workflow",
    "WorkflowParam",
    "__version__",
    "for_loop",
    "open_run",
    "secret",
    "task",
    "when",
    "while_loop",
    "workflow",
}


def test_the_public_names_are_these_and_all_of_them_are_there() -> None:
    assert set(penstock.__all__) == PUBLIC
    assert len(penstock.__all__) == len(PUBLIC)
    for name in PUBLIC:
        assert getattr(penstock, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(penstock, "Nope")


def test_importing_penstock_and_asking_for_help_load_nothing_heavy() -> None:
    for code in ("import penstock", "import penstock.cli.main"):
        listing = f"{code}\nimport sys\nprint(' '.join(sys.modules))"
        loaded = subprocess.run(
            [sys.executable, "-c", listing], check=True, capture_output=True, text=True
        ).stdout.split()
        assert not {"yaml", "asyncio", "penstock.author.compiler", "penstock.plan.make", "penstock.graph.check"} & set(
            loaded
        )
