"""A process that submits a payload and dies at a point of the protocol, or executes what is ordered. Started by test_crashes with the point, the place of
the store and the image of the step.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from penstock.cli.main import run
from penstock.graph import codec
from penstock.graph.model import Workflow
from penstock.service.payloads import submit
from penstock.service.payloads.sender import PayloadSender
from penstock.service.payloads.submit import PayloadRequest
from penstock.settings import Settings, read
from penstock.store.payloads import PayloadRepository
from penstock.store.runs import RunRepository

PAYLOAD = {"id": "scene-1", "data": "x" * 100_000}
"""Large enough to go among the blobs."""


def graph(image: str) -> Workflow:
    return codec.from_text(
        f"""
apiVersion: penstock/v1
kind: Workflow
name: ingest
params: [{{name: payload}}]
payload: {{include: [.id]}}
steps: [{{name: a, container: {{image: 'does:{image}', command: [x]}}}}]
""",
        "ingest",
    )


def settings_at(home: str, where: str) -> Settings:
    return read({}, home=home, store=where, jobs=2)


def send(settings: Settings, image: str) -> Any:
    sender = PayloadSender(graph(image), settings, {"on": {"container": "kubernetes"}}, worker=False)
    try:
        return sender.submit(PayloadRequest(payload=PAYLOAD))
    finally:
        sender.close()


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def then_die(work: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **given: Any) -> Any:
        work(*args, **given)
        die()

    return call


def main(point: str, home: str, where: str, image: str) -> None:
    settings = settings_at(home, where)
    if point == "its id is known":
        submit.by_reference = die
    elif point == "its blob is there":
        PayloadRepository.submit = die  # type: ignore[method-assign]
    elif point == "its run is written":
        RunRepository.create = then_die(RunRepository.create)  # type: ignore[method-assign]
    elif point == "all is committed":
        PayloadRepository.submit = then_die(PayloadRepository.submit)  # type: ignore[method-assign]
    else:
        run(["worker"])
        return
    send(settings, image)


if __name__ == "__main__":
    main(*sys.argv[1:])
