"""Penstock: a queue-aware workflow system. These are the public names; each is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from penstock.author.chains import Chain
    from penstock.author.control import for_loop, when, while_loop
    from penstock.author.flow import workflow
    from penstock.author.jobs import BaseJob, ContainerJob, ResourceJob, ScriptJob, Workflow
    from penstock.author.links import Link
    from penstock.author.secrets import secret
    from penstock.author.tasks import FunctionJob, task
    from penstock.author.values import WorkflowParam
    from penstock.errors import InvalidInput, PenstockError
    from penstock.graph.callback import AnswerRule, Callback, CallbackRetry
    from penstock.graph.model import Answer, Backoff, Cache, Outcome, Retry, Toleration, Unit
    from penstock.graph.payload_paths import PayloadIdentity
    from penstock.runners.base import RunFailed
    from penstock.runners.client import Client
    from penstock.runners.clusters import ArgoRunner, JobSetRunner, TektonRunner
    from penstock.runners.local import LocalRunner, Run, open_run

_HOME = {
    "for_loop": "author.control", "when": "author.control", "while_loop": "author.control",
    "task": "author.tasks", "workflow": "author.flow",
    "Chain": "author.chains", "Link": "author.links",
    "BaseJob": "author.jobs", "ContainerJob": "author.jobs", "FunctionJob": "author.tasks", "ResourceJob": "author.jobs",
    "ScriptJob": "author.jobs", "Workflow": "author.jobs", "WorkflowParam": "author.values", "secret": "author.secrets",
    "PenstockError": "errors", "InvalidInput": "errors", "PayloadIdentity": "graph.payload_paths",
    "AnswerRule": "graph.callback", "Callback": "graph.callback", "CallbackRetry": "graph.callback",
    "Answer": "graph.model", "Backoff": "graph.model", "Cache": "graph.model", "Outcome": "graph.model", "Retry": "graph.model",
    "Toleration": "graph.model", "Unit": "graph.model",
    "ArgoRunner": "runners.clusters", "JobSetRunner": "runners.clusters", "TektonRunner": "runners.clusters",
    "Client": "runners.client", "LocalRunner": "runners.local", "Run": "runners.local", "open_run": "runners.local", "RunFailed": "runners.base",
}  # fmt: skip

__all__ = [
    "Answer", "AnswerRule", "ArgoRunner", "Backoff", "BaseJob", "Cache", "Callback", "CallbackRetry", "Chain", "Client", "ContainerJob", "FunctionJob", "InvalidInput", "JobSetRunner", "Link", "LocalRunner", "Outcome", "PayloadIdentity",
    "PenstockError", "ResourceJob", "Retry", "Run", "RunFailed", "ScriptJob", "TektonRunner", "Toleration", "Unit", "Workflow", "WorkflowParam", "__version__", "for_loop", "open_run", "secret", "task", "when", "while_loop", "workflow",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"penstock.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
