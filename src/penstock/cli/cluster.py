"""What the commands about a cluster share: how it is reached, and whose namespace is meant. Called by why and queue."""

from __future__ import annotations

import time

from penstock.controller.inspect.kinds import target_of
from penstock.controller.inspect.kubectl import KubectlLookup
from penstock.controller.inspect.live import live_state
from penstock.controller.inspect.why import ClusterReport, why
from penstock.service.views.quotas import QueueReader


def connect(context: str | None, kubeconfig: str | None) -> KubectlLookup:
    return KubectlLookup(context or "", kubeconfig or "")


def why_in_cluster(lookup: KubectlLookup, target: str, namespace: str | None) -> ClusterReport:
    wanted = target_of(target)
    return why(lookup, wanted, namespace or lookup.namespace(), time.time())


def queues_of_cluster(lookup: KubectlLookup, namespace: str | None) -> QueueReader:
    return QueueReader(live_state(lookup, namespace or lookup.namespace(), time.time()))
