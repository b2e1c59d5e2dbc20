"""Argo Workflows as an engine of the controller.

    adjust   a new Workflow: suspend gates before its stages, the queue's label on its pods
    nodes    status.nodes: gates, pods, what belongs to which stage
    engine   the interface: view, open; stop is in `stopping`

How Argo reacts to each write is in docs/ideas/engines.md.
"""

from penstock.controller.engines.argo.engine import ENGINE

__all__ = ["ENGINE"]
