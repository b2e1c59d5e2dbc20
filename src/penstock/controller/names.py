"""Labels, annotations and other names that the controller reads and writes. Used by every part of `controller`, and by the manifests.

Users write Kueue's own label `kueue.x-k8s.io/queue-name` and, if they like, `penstock/unit`. The rest is written by Penstock.
"""

from __future__ import annotations

from typing import Final

from penstock.formats.gates.marks import POD_GATE
from penstock.formats.labels import PRIORITY, QUEUE
from penstock.kubernetes.objects import MANAGER, WORKFLOW_UID

__all__ = ["MANAGER", "POD_GATE", "PRIORITY", "QUEUE", "WORKFLOW_UID"]

OURS: Final = "penstock/"
"""What all names of ours begin with."""
UNIT: Final = "penstock/unit"
"""On a workflow, as label or annotation, and on a namespace as the default: workflow, stage, task or reuse."""
BY_STEPS: Final = "penstock/suspend-by-steps"
"""On a Workflow, as label or annotation, and on a namespace as the default: "false" has pods wait instead of stages. By default stages are suspended."""
QUEUED: Final = "penstock/queue"
"""On every object that a queued workflow creates (TaskRuns, Jobs, pods), and on a JobSet in place of Kueue's label. A pod with it is held."""
STAGE: Final = "penstock/stage"
"""On a Workload: the key of its stage."""
TASKS: Final = "penstock/tasks"
"""On a Workload that was sized by the pods that wait: the tasks that it covers, as a JSON list."""
PLACE: Final = "penstock/place"
"""On a Workload that was made before its stage is reached: it keeps a place in the queue and is switched off."""
REST: Final = "rest of "
"""What such a place begins with, if it is for the part of a loop that will perhaps not be admitted with the others."""
STOPPING: Final = "penstock/stopping"
"""On a workflow while a stage of it is stopped: what the engine has to know between two writes, as JSON. On a pod of Tekton: its TaskRun is about
to be deleted."""
OPENED: Final = "penstock/opened"
"""On a workflow that is queued whole, when it was let go."""
PARALLELISM: Final = "penstock/parallelism"
"""On a Job of a queued JobSet: the parallelism that it has when it may run."""
SUSPEND: Final = "penstock/suspend"
"""On a queued JobSet: "true" if its user has suspended it as it was created. Kueue may suspend it as well, before it knows that it is ours."""
POD_SET: Final = "penstock/pod-set"
"""On a pod that may run: Workload and pod set that it counts against, as `workload/pod-set`."""
