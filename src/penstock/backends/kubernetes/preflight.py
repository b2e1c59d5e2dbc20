"""Does the cluster answer, and may we do there what tasks need? Asked before a run begins, so that what is wrong is said at once, and by
`penstock doctor`. Called by the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.backends.environment import for_tasks
from penstock.backends.kubernetes import cluster, options, queues


def check(home: Path, artifacts: str, environ: Mapping[str, str]) -> str:
    """What was found. Raises UserError."""
    given = for_tasks(environ)
    chosen = options.read(given, home, artifacts)
    with cluster.client_of(chosen, given) as client:
        namespace = cluster.namespace_of(chosen, client)
        cluster.check(client, namespace)
        there = sorted(queues.queues_in(client, namespace)) if chosen.kueue else []
        where = client.connection.context or client.connection.server
    reached = (
        f"pods find the artifact store at {chosen.store}" if chosen.store else "pods cannot reach the artifact store"
    )
    decides = f"; Kueue decides, in {', '.join(there)}" if there else ""
    return f"{where}, namespace {namespace}: it answers, and you have the rights; {reached}{decides}"
