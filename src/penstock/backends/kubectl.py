"""A Kubernetes object by kubectl, with the user's own kubeconfig. Called by resource.

Creating can be repeated safely: the name is the manifest's, or made of its generateName and the attempt's id, so the same attempt
after a crash finds its object by name. Annotations say which run and task it belongs to; an object of that name that belongs to
something else is an error. A second try of a task with a fixed name finds the object of the first; generateName gives each try
its own.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.backends.base import AttemptSpec
from penstock.backends.tools import NO_ANSWER, ToolResult, ask, find
from penstock.errors import Problem, UserError
from penstock.graph import model
from penstock.graph.text import read_all_yaml

RUN, TASK, OWNER = "penstock/run", "penstock/task", "penstock/owner"
"""Annotations."""
_UNREACHABLE = re.compile(
    r"unable to connect|connection refused|was refused|no such host|i/o timeout|timed? ?out|no route to host|network is unreachable"
    r"|connection reset|current server api group list|no configuration has been provided|invalid configuration"
    r"|error loading config|context .* does not exist|must be logged in|unauthorized|x509|executable .* not found|EOF$",
    re.I | re.M,
)


@dataclass(frozen=True, slots=True)
class KubernetesObject:
    manifest: dict[str, Any]

    @property
    def text(self) -> str:
        return json.dumps(self.manifest, default=str)

    @property
    def reference(self) -> str:
        """Enough of the manifest for `get`."""
        meta = self.manifest["metadata"]
        short = {key: meta[key] for key in ("name", "namespace") if key in meta}
        return json.dumps({key: self.manifest[key] for key in ("apiVersion", "kind")} | {"metadata": short})

    def __str__(self) -> str:
        meta = self.manifest["metadata"]
        return f"{self.manifest['kind']} {meta['namespace'] + '/' if meta.get('namespace') else ''}{meta['name']}"

    def check_ours(self, found: Any) -> Any:
        """`found` exists already: is it this attempt's, from before a crash? Raises ValueError if not."""
        if found is None:
            raise ValueError(f"{self} was being deleted when it was to be created; try again")
        theirs = (found.get("metadata") or {}).get("annotations") or {}
        ours = self.manifest["metadata"]["annotations"]
        if any(theirs.get(key) != ours[key] for key in (RUN, TASK, OWNER)):
            whose = f"of run {theirs[RUN]}, task {theirs.get(TASK)}" if RUN in theirs else "not made by Penstock"
            fix = "give the manifest another name, or generateName, or use the action apply"
            raise ValueError(f"{self} exists already and is {whose}; {fix}")
        return found


def object_of(action: model.Resource, spec: AttemptSpec, owner: str) -> KubernetesObject:
    """One object with a name. Raises ValueError."""
    data = action.manifest
    if isinstance(data, str):
        found = [document for document, _ in read_all_yaml(data, "the manifest") if document is not None]
        if len(found) != 1:
            raise ValueError(f"the manifest has {len(found)} objects; a resource step has one")
        data = found[0]
    if not isinstance(data, Mapping) or not data.get("apiVersion") or not data.get("kind"):
        raise ValueError("the manifest is not a Kubernetes object: it needs apiVersion, kind and metadata")
    manifest: dict[str, Any] = copy.deepcopy(dict(data))
    meta = manifest.get("metadata")
    meta = manifest["metadata"] = dict(meta) if isinstance(meta, Mapping) else {}
    prefix = meta.pop("generateName", None)
    if not meta.get("name"):
        if not isinstance(prefix, str) or action.action not in ("create", "apply"):
            raise ValueError(f"the manifest of the {manifest['kind']} has no metadata.name")
        digest = hashlib.sha256(f"{owner}\0{spec.id}".encode("utf-8", "surrogatepass")).hexdigest()[:10]
        meta["name"] = prefix[:52] + digest
    if action.action == "create":
        meta["annotations"] = {**(meta.get("annotations") or {}), RUN: spec.run, TASK: spec.task, OWNER: owner}
    return KubernetesObject(manifest)


class Kubectl:
    """At most `most` at a time. Every call raises UserError if the cluster cannot be reached, ValueError if it refuses."""

    def __init__(self, environ: Mapping[str, str], most: int) -> None:
        self._environ = dict(environ)
        self._turn = asyncio.Semaphore(most)

    async def get(self, object_: KubernetesObject) -> Any:
        """The object as the cluster has it; None if there is none."""
        result = await self._run(object_.reference, "get", "--filename", "-", "--output", "json")
        return None if "(NotFound)" in result.err else _parsed(_checked(result))

    async def delete(self, object_: KubernetesObject) -> None:
        """Returns at once. An object that does not exist need not be deleted."""
        words = ("delete", "--filename", "-", "--wait=false", "--ignore-not-found")
        _checked(await self._run(object_.reference, *words))

    async def patch(self, object_: KubernetesObject) -> Any:
        words = ["patch", "--filename", "-", "--patch", object_.text, "--output", "json"]
        result = await self._run(object_.reference, *words, "--type=strategic")
        if "UnsupportedMediaType" in result.err or "is not supported by" in result.err:  # custom resources
            result = await self._run(object_.reference, *words, "--type=merge")
        return _parsed(_checked(result))

    async def create(self, object_: KubernetesObject) -> Any:
        """The new object; None if one of that name exists already."""
        result = await self._run(object_.text, "create", "--filename", "-", "--output", "json")
        return None if "(AlreadyExists)" in result.err else _parsed(_checked(result))

    async def act(self, verb: str, object_: KubernetesObject) -> Any:
        """Any other verb that takes a manifest: apply, replace."""
        return _parsed(_checked(await self._run(object_.text, verb, "--filename", "-", "--output", "json")))

    async def _run(self, given: str, *words: str) -> ToolResult:
        tool = find(self._environ, "PENSTOCK_KUBECTL", ("kubectl",))
        if tool is None:
            chosen = self._environ.get("PENSTOCK_KUBECTL")
            what = f"there is no {chosen}" if chosen else "there is no kubectl in PATH"
            fix = "install kubectl, or name it by PENSTOCK_KUBECTL"
            raise UserError(Problem("P704", f"Kubernetes cannot be reached: {what}", fix))
        async with self._turn:
            return await ask([*tool, *words, "--request-timeout=30s"], self._environ, given)


def uid_of(object_: Any) -> str | None:
    return (object_.get("metadata") or {}).get("uid") if isinstance(object_, Mapping) else None


def _checked(result: ToolResult) -> ToolResult:
    if result.code == 0:
        return result
    if result.code == NO_ANSWER or _UNREACHABLE.search(result.err):
        fix = "see what `kubectl cluster-info` says, and choose the cluster with `kubectl config use-context` or KUBECONFIG"
        raise UserError(Problem("P704", f"Kubernetes cannot be reached: {result.line}", fix))
    raise ValueError(f"kubectl: {result.line}")


def _parsed(result: ToolResult) -> Any:
    try:
        return json.loads(result.out)
    except ValueError:
        raise ValueError(f"kubectl answered what is not JSON: {result.out[:80]!r}") from None
