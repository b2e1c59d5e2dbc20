"""Secrets in real containers of podman; where it is missing or does not work, these tests skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import ContainerJob, LocalRunner, Workflow, WorkflowParam, secret
from tests.support.podman import IMAGE, Podman, Unusable

HUSH = "in-a-" + "container"


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    try:
        found = Podman()
    except Unusable as error:
        pytest.skip(str(error))
    yield found
    found.close()


def test_the_tool_gets_it_by_its_environment_and_the_log_is_masked(
    podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in podman.environ.items():
        monkeypatch.setenv(name, value)
    words = tmp_path / "words"
    tool = tmp_path / "tool"
    tool.write_text(f'#!/bin/sh\necho "$@" >>{words}\nexec podman "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PENSTOCK_CONTAINER_TOOL", str(tool))
    monkeypatch.setenv("PENSTOCK_CONTAINER_OPTIONS", "--network=none")
    monkeypatch.setenv("PENSTOCK_SECRET_TOKEN", HUSH)
    job = ContainerJob(
        "one",
        IMAGE,
        ["sh", "-c", 'echo "$T"; cat /in/token; test "$T" = "$(cat /in/token)" && echo same >&2'],
        env={"T": secret("TOKEN")},
        inputs=[WorkflowParam("token", str, secret("TOKEN"), path="/in/token")],
    )
    run = LocalRunner().run(Workflow("w", steps=[job]))
    assert run.status == "succeeded", run.failures
    assert run.logs("one") == "***\n***same\n"
    assert HUSH not in words.read_text() and "--env T " in words.read_text()
