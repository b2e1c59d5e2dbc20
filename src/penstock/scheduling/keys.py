"""JobLabels and annotations that YuniKorn, Kueue and the operators read. Used by every module of this package."""

from __future__ import annotations

from typing import Final

YUNIKORN: Final = "yunikorn"
"""The schedulerName of its pods."""
APP: Final = "yunikorn.apache.org/app-id"
OLD_APP: Final = "applicationId"
SPARK_APP: Final = "spark-app-selector"
YK_QUEUE: Final = "yunikorn.apache.org/queue"
OLD_QUEUE: Final = "queue"
GROUP: Final = "yunikorn.apache.org/task-group-name"
GROUPS: Final = "yunikorn.apache.org/task-groups"
PARAMETERS: Final = "yunikorn.apache.org/schedulingPolicyParameters"
USER_INFO: Final = "yunikorn.apache.org/user.info"
ALLOW_PREEMPTION: Final = "yunikorn.apache.org/allow-preemption"
TIMEOUT: Final = "placeholderTimeoutInSeconds"
STYLE: Final = "gangSchedulingStyle"
OF_YUNIKORN: Final = frozenset({APP, OLD_APP, YK_QUEUE, OLD_QUEUE, GROUP, GROUPS, PARAMETERS, ALLOW_PREEMPTION})

POD_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
POD_GROUP_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
ELASTIC: Final = "kueue.x-k8s.io/elastic-job"
MOST_POD_SETS: Final = 18
"""Of one Workload."""

RAY_FT: Final = "ray.io/ft-enabled"
LONGEST_LABEL: Final = 63
"""The most characters of a label's value."""
