"""Satellite scenes as payloads: a filter inside the engine, the heavy step in a container, a chain, a callback for each result.

Submit a payload as often as you like: each scene is worked on once, and whoever listens is told once.

penstock submit examples/scenes/flow.py:scenes examples/scenes/payload.json -p hook=https://example.org/done --wait
"""

from typing import Any

from penstock import (
    Callback,
    ContainerJob,
    FunctionJob,
    InvalidInput,
    PayloadIdentity,
    Workflow,
    WorkflowParam,
    for_loop,
    task,
)

payload = WorkflowParam("payload", dict)
hook = WorkflowParam("hook", str)
identity = PayloadIdentity("payload", include=[".features[].id"])
told = Callback(
    name="told", url="${{ params.hook }}", body={"scene": "${{ params.payload.id }}", "state": "${{ run.state }}"}
)


@task
def clear(payload: dict[str, Any]) -> list[str]:
    """Which features are worth a container. What nobody can judge is no input, and is not tried again."""
    if not all("cloud" in one for one in payload["features"]):
        raise InvalidInput("no cloud cover")
    return [one["id"] for one in payload["features"] if one["cloud"] < 20]


@task
def next_payload(payload: dict[str, Any], tiles: list[str]) -> dict[str, Any]:
    """What goes to the next link: the features that were rendered."""
    return {**payload, "features": [{"id": tile.strip()} for tile in tiles]}


@task
def list_published(payload: dict[str, Any]) -> str:
    return ",".join(one["id"] for one in payload["features"])


chosen = FunctionJob("clear", clear, {"payload": payload})


@for_loop(feature=chosen.outputs["result"], parallel=4)
def each(feature):
    return ContainerJob(
        name="render",
        image="busybox",
        command=["sh", "-c", 'echo "tile-$1"', "render", feature],
        outputs=[WorkflowParam("tile", str, path="/dev/stdout")],
        cpu=1,
        retry=2,
    )


made = FunctionJob("made", next_payload, {"payload": payload, "tiles": each.outputs["tile"]})
listed = FunctionJob("listed", list_published, {"payload": payload})
publish = Workflow(
    "publish",
    [listed],
    params=[payload, WorkflowParam("hook", str)],
    outputs={"result": listed.outputs["result"]},
    payload=identity,
    callbacks=[told],
)
scenes = Workflow(
    "scenes",
    [chosen, each, made],
    params=[payload, hook],
    outputs={"payload": made.outputs["result"]},
    payload=identity,
    catalogue=[publish],
)
