"""The kinds of Kueue's API. Used by `status`, by the controller and by the backend kubernetes. Pure."""

from __future__ import annotations

from typing import Final

from penstock.kubernetes.objects import WORKFLOW_UID, ApiResource

API: Final = "kueue.x-k8s.io/v1beta2"
WORKLOADS: Final = ApiResource(API, "Workload", "workloads", selector=WORKFLOW_UID)
"""As the controller watches them; who watches others has a selector of its own."""
LOCAL_QUEUES: Final = ApiResource(API, "LocalQueue", "localqueues")
CLUSTER_QUEUES: Final = ApiResource(API, "ClusterQueue", "clusterqueues", namespaced=False)
FLAVORS: Final = ApiResource(API, "ResourceFlavor", "resourceflavors", namespaced=False)
PRIORITIES: Final = ApiResource(API, "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False)
