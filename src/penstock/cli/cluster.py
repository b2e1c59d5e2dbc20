"""What the commands about a cluster share: how it is reached, and whose namespace is meant. Called by why and queue."""

from __future__ import annotations

import os
import time

from penstock.controller.inspect.kinds import target_of
from penstock.controller.inspect.kubectl import KubectlLookup
from penstock.controller.inspect.live import live_state
from penstock.controller.inspect.why import ClusterReport, why
from penstock.errors import NotFound
from penstock.plan.make import Plan
from penstock.service.views.outlook import Outlook, cluster_outlook, outlook_of_scheduler
from penstock.service.views.quotas import QueueReader
from penstock.settings import read


def connect(context: str | None, kubeconfig: str | None) -> KubectlLookup:
    return KubectlLookup(context or "", kubeconfig or "")


def why_in_cluster(lookup: KubectlLookup, target: str, namespace: str | None) -> ClusterReport:
    wanted = target_of(target)
    return why(lookup, wanted, namespace or lookup.namespace(), time.time())


def queues_of_cluster(lookup: KubectlLookup, namespace: str | None) -> QueueReader:
    return QueueReader(live_state(lookup, namespace or lookup.namespace(), time.time()))


def outlook_in_cluster(plan: Plan) -> dict[str, Outlook]:
    """What Kueue's queues would say now to a run there; by reservation. Raises UserError."""
    scheduler = read().queues_pods
    if scheduler:
        return outlook_of_scheduler(plan, scheduler)
    lookup = connect(os.environ.get("PENSTOCK_KUBERNETES_CONTEXT"), None)
    namespace = os.environ.get("PENSTOCK_KUBERNETES_NAMESPACE") or lookup.namespace()
    now = time.time()
    try:
        state = live_state(lookup, namespace, now)
    except NotFound as error:
        if error.code != "P892":
            raise
        nothing = Outlook("no queue", detail="the cluster has no Kueue: its scheduler decides")
        return {one.name: nothing for one in plan.reservations}
    return cluster_outlook(plan, state.scheduler, namespace, now)
