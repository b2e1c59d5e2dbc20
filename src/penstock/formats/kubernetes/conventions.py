"""Names and delays that readers and writers of JobSets and Jobs share."""

from __future__ import annotations

from typing import Final

from penstock.graph.model import Backoff

JOBSET_LABEL: Final = "jobset.sigs.k8s.io/"
JOB_BACKOFF: Final = Backoff(initial=10.0, factor=2.0, longest=360.0, jitter=0.0)
"""How long Kubernetes waits before it replaces a failed pod of a Job …"""
POD_BACKOFF: Final = Backoff(initial=10.0, factor=2.0, longest=300.0, jitter=0.0)
"""… and before it restarts a container."""
AT_ONCE: Final = Backoff(initial=0.0, factor=1.0, longest=0.0, jitter=0.0)
"""A JobSet is restarted without delay."""
