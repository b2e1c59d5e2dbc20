"""Labels and annotations of Kubernetes and Kueue that documents carry. Read and written by every format."""

from __future__ import annotations

from typing import Final

QUEUE: Final = "kueue.x-k8s.io/queue-name"
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
DESCRIPTION: Final = "kubernetes.io/description"
