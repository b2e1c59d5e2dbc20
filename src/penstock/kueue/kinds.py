"""The kinds of Kueue's API. Used by `status`, by the controller and by the backend kubernetes. Pure."""

from __future__ import annotations

from typing import Final

from penstock.kubernetes.objects import WORKFLOW_UID, Resource

API: Final = "kueue.x-k8s.io/v1beta2"
WORKLOADS: Final = Resource(API, "Workload", "workloads", selector=WORKFLOW_UID)
"""As the controller watches them; who watches others has a selector of its own."""
LOCAL_QUEUES: Final = Resource(API, "LocalQueue", "localqueues")
CLUSTER_QUEUES: Final = Resource(API, "ClusterQueue", "clusterqueues", namespaced=False)
FLAVORS: Final = Resource(API, "ResourceFlavor", "resourceflavors", namespaced=False)
PRIORITIES: Final = Resource(API, "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False)
