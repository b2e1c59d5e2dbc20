"""Pages about a cluster beside the store: one of its queues, and why an object waits. Taken in by site. The lists are on the pages of runs and queues."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from penstock.phrases import quoted
from penstock.server.api.common import needed_cluster, needs, threads_of
from penstock.server.pages.queues import EXPLAINED, queue_data
from penstock.server.pages.site import page

router = APIRouter(include_in_schema=False)
LOOK = needs("viewer", "look at the cluster")


@router.get("/cluster/queues/{name:path}", dependencies=[LOOK])
async def show_queue(request: Request, name: str) -> Response:
    source = needed_cluster(request)
    view = await threads_of(request).call(lambda _: source.queue(name, EXPLAINED))
    status = source.status()

    def there(workload: str) -> str:
        namespace, _, called = workload.partition("/")
        return "/cluster/why?" + urlencode({"object": f"workload/{called}", "namespace": namespace})

    data: dict[str, Any] = {**queue_data(view, there), "may_stop": False, "status": status}
    data["data"] = view.as_data() | status.as_data()
    command = f"penstock queue show {quoted(name.rpartition('/')[2])} --context {quoted(status.name)}"
    namespace = name.rpartition("/")[0]
    return page(request, "queue.html", data, command + (f" -n {quoted(namespace)}" if namespace else ""))


@router.get("/cluster/why", dependencies=[LOOK])
async def why_object(
    request: Request,
    object: Annotated[str, Query(max_length=600)],
    namespace: Annotated[str, Query(max_length=300)] = "default",
) -> Response:
    source = needed_cluster(request)
    found = await threads_of(request).call(lambda _: source.why(object, namespace))
    status = source.status()
    data = {"data": found.data | {"cluster": status.as_data()}, "found": found, "status": status}
    command = f"penstock why {quoted(object)} -n {quoted(namespace)} --context {quoted(status.name)}"
    return page(request, "cluster.html", data, command)
