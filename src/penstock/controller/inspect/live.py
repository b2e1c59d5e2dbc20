"""Reads what a ClusterState is made of. Called by why and by `penstock queue --cluster`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.controller.inspect.kinds import ALL_WORKLOADS
from penstock.controller.inspect.kubectl import read_all
from penstock.controller.inspect.state import EVERYTHING, ClusterState
from penstock.controller.objects import LOCAL_QUEUES, ApiResource, Lookup, part
from penstock.errors import UserError
from penstock.graph.text import read_all_yaml

_CONFIG_MAPS = ApiResource("v1", "ConfigMap", "configmaps")
_SYSTEM, _CONFIGURATION = "kueue-system", "kueue-manager-config"


def live_state(lookup: Lookup, namespace: str, now: float) -> ClusterState:
    """`namespace`: that of the user. Raises UserError."""
    return ClusterState(read_all(lookup, EVERYTHING), now, namespace, _configuration(lookup))


def state_for(lookup: Lookup, namespace: str, now: float) -> ClusterState:
    """The same; for a user who may not see the whole cluster, what there is in the namespace. Raises UserError if that cannot be read
    either."""
    try:
        return live_state(lookup, namespace, now)
    except UserError as error:
        if error.code != "P891":
            raise
        try:
            here = {kind: lookup.list(kind, namespace) for kind in (LOCAL_QUEUES, ALL_WORKLOADS)}
        except UserError:
            raise error from None
        return ClusterState({kind: here.get(kind, ()) for kind in EVERYTHING}, now, namespace, unseen=error.problems[0])


def _configuration(lookup: Lookup) -> Mapping[str, Any]:
    """Kueue's own, where its manifests put it. Few may read it; without it the defaults hold."""
    try:
        found = lookup.get(_CONFIG_MAPS, _SYSTEM, _CONFIGURATION)
        texts = part(found or {}, "data").values()
        documents = [document for text in texts for document, _ in read_all_yaml(str(text), _CONFIGURATION)]
    except UserError:
        return {}
    return next((one for one in documents if isinstance(one, Mapping) and one.get("kind") == "Configuration"), {})
