"""`$(NAME)` in the commands of a pod, and the variables that tell a pod its number. Called by the readers and writers of pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.expressions.parse import Expr
from penstock.formats.values import joined, pieces
from penstock.graph.model import Value

REPLICA: Final = "$(PENSTOCK_REPLICA)"
"""The number of a pod in its gang: each process has it in its environment."""
INDEX_FIELD: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
INDEX_NAME: Final = "JOB_COMPLETION_INDEX"
OURS: Final = ("PENSTOCK_REPLICA", "PENSTOCK_INDEX", "PENSTOCK_REPLICAS")
"""Variables with the number of a pod, which writers add; on this machine every process has them anyway."""
MOST_PODS: Final = 10_000_000


def expand(text: str, env: Mapping[str, Value]) -> Value:
    """As in the kubelet: `$(NAME)` of a known name is its value, `$$` is one dollar sign, everything else stays."""
    if "$" not in text:
        return text
    found: list[str | Expr] = []
    at = 0
    while at < len(text):
        next_at = text.find("$", at)
        if next_at < 0 or next_at + 1 >= len(text):
            break
        found.append(text[at:next_at])
        close = text.find(")", next_at) if text[next_at + 1] == "(" else -1
        if close < 0:
            found.append("$" if text[next_at + 1] == "$" else text[next_at : next_at + 2])
            at = next_at + 2
            continue
        found.extend(pieces(env.get(text[next_at + 2 : close], text[next_at : close + 1])))
        at = close + 1
    found.append(text[at:])
    return joined(found)
