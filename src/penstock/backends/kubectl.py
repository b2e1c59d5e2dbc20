"""A Kubernetes object by kubectl, with the user's own kubeconfig. Called by resource and its parts.

Creating can be repeated safely: the name is the manifest's, or made of its generateName and the attempt's id, so the same attempt
after a crash finds its object by name. Annotations say which run and task it belongs to; an object of that name that belongs to
something else is an error. With a fixed name, a second try of a task replaces the object of the first, which has failed.
"""

from __future__ import annotations

import asyncio
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
from penstock.scheduling.kinds import outcomes

RUN, TASK, OWNER, ATTEMPT = "penstock/run", "penstock/task", "penstock/owner", "penstock/attempt"
"""Annotations."""
_NO_KIND = re.compile(r'no matches for kind "([^"]*)" in version "([^"]*)"')
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

    def check_ours(self, found: Any) -> None:
        """`found` exists already: was it made for this task? Raises ValueError if not."""
        theirs = (found.get("metadata") or {}).get("annotations") or {}
        ours = self.manifest["metadata"]["annotations"]
        if any(theirs.get(key) != ours[key] for key in (RUN, TASK, OWNER)):
            whose = f"of run {theirs[RUN]}, task {theirs.get(TASK)}" if RUN in theirs else "not made by Penstock"
            fix = "give the manifest another name, or generateName, or use the action apply"
            raise ValueError(f"{self} exists already and is {whose}; {fix}")

    def adopted(self) -> KubernetesObject:
        """A patch that says which attempt goes on with it."""
        meta = {
            key: self.manifest["metadata"][key] for key in ("name", "namespace") if key in self.manifest["metadata"]
        }
        meta["annotations"] = {ATTEMPT: self.manifest["metadata"]["annotations"][ATTEMPT]}
        return KubernetesObject({key: self.manifest[key] for key in ("apiVersion", "kind")} | {"metadata": meta})

    def is_of_a_later_try(self, found: Any, attempt: int) -> bool:
        """Does another engine go on with it?"""
        text = str(((found.get("metadata") or {}).get("annotations") or {}).get(ATTEMPT, ""))
        return text.isdecimal() and int(text) > attempt

    def is_of_an_earlier_try(self, found: Any, since: int) -> bool:
        """Was it made by a try of the task that has ended, and with which this one does not go on?"""
        text = str(((found.get("metadata") or {}).get("annotations") or {}).get(ATTEMPT, ""))
        return text.isdecimal() and int(text) < since


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
    manifest: dict[str, Any] = json.loads(
        json.dumps(dict(data), default=str)
    )  # lists that are tuples, dates that YAML has read
    meta = manifest.get("metadata")
    meta = manifest["metadata"] = dict(meta) if isinstance(meta, Mapping) else {}
    prefix = meta.pop("generateName", None)
    if not meta.get("name"):
        if not isinstance(prefix, str) or action.action not in ("create", "apply"):
            raise ValueError(f"the manifest of the {manifest['kind']} has no metadata.name")
        same = f"{owner}\0{spec.run}/{spec.task}/{spec.since or spec.attempt}"  # for an attempt that goes on with one that an engine has left
        digest = hashlib.sha256(same.encode("utf-8", "surrogatepass")).hexdigest()[:10]
        meta["name"] = prefix[:52] + digest
    if action.action == "create":
        meta["annotations"] = {**(meta.get("annotations") or {}), RUN: spec.run, TASK: spec.task, OWNER: owner}
        meta["annotations"][ATTEMPT] = str(spec.attempt)
    return KubernetesObject(manifest)


class Kubectl:
    """At most `most` at a time. Every call raises UserError if the cluster cannot be reached, ValueError if it refuses."""

    def __init__(self, environ: Mapping[str, str], most: int) -> None:
        self._environ = dict(environ)
        self._turn = asyncio.Semaphore(most)

    async def get(self, object_: KubernetesObject) -> Any:
        """The object as the cluster has it; None if there is none."""
        result = await self._run(object_.reference, "get", "--filename", "-", "--output", "json")
        return None if "(NotFound)" in result.err else _one(_checked(result))

    async def delete(self, object_: KubernetesObject) -> None:
        """Returns at once. An object that does not exist need not be deleted."""
        words = ("delete", "--filename", "-", "--wait=false", "--ignore-not-found")
        _checked(await self._run(object_.reference, *words))

    async def delete_this(self, found: Mapping[str, Any]) -> bool:
        """This very object, as it was seen, and no other of its name. Returns at once; False if it was gone already."""
        api, meta = str(found["apiVersion"]), found["metadata"]
        root = f"/apis/{api}" if "/" in api else f"/api/{api}"
        listed = _parsed(_checked(await self._run("", "get", "--raw", root))).get("resources") or ()
        plural = next(
            (one["name"] for one in listed if one.get("kind") == found["kind"] and "/" not in one["name"]), None
        )
        if plural is None:
            raise ValueError(f"the cluster does not list {found['kind']} in {api}")
        space = f"/namespaces/{meta['namespace']}" if meta.get("namespace") else ""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        body = json.dumps(options | {"preconditions": {"uid": meta["uid"]}})
        result = await self._run(body, "delete", "--raw", f"{root}{space}/{plural}/{meta['name']}", "--filename", "-")
        if "(NotFound)" in result.err or "(Conflict)" in result.err:
            return False
        _checked(result)
        return True

    async def pods(self, namespace: str, selector: str) -> list[Mapping[str, Any]]:
        words = ("get", "pods", *_in(namespace), "--selector", selector, "--output", "json")
        return list(_parsed(_checked(await self._run("", *words))).get("items") or ())

    async def log(self, namespace: str, pod: str, lines: int) -> str:
        """Of all containers of a pod, one after the other."""
        words = ("logs", pod, *_in(namespace), "--all-containers", "--tail", str(lines))
        return _checked(await self._run("", *words)).out

    async def exists(self, resource: str, name: str, namespace: str) -> bool:
        """False also if the cluster knows no such resource."""
        result = await self._run("", "get", resource, name, *_in(namespace), "--output", "name")
        if "(NotFound)" in result.err or "doesn't have a resource type" in result.err:
            return False
        _checked(result)
        return True

    async def patch(self, object_: KubernetesObject) -> Any:
        words = ["patch", "--filename", "-", "--patch", object_.text, "--output", "json"]
        result = await self._run(object_.reference, *words, "--type=strategic")
        if "UnsupportedMediaType" in result.err or "is not supported by" in result.err:  # custom resources
            result = await self._run(object_.reference, *words, "--type=merge")
        return _one(_checked(result))

    async def create(self, object_: KubernetesObject) -> Any:
        """The new object; None if one of that name exists already."""
        result = await self._run(object_.text, "create", "--filename", "-", "--output", "json")
        return None if "(AlreadyExists)" in result.err else _one(_checked(result))

    async def act(self, verb: str, object_: KubernetesObject) -> Any:
        """Any other verb that takes a manifest: apply, replace."""
        return _one(_checked(await self._run(object_.text, verb, "--filename", "-", "--output", "json")))

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


def _in(namespace: str) -> tuple[str, ...]:
    return ("--namespace", namespace) if namespace else ()


def _checked(result: ToolResult) -> ToolResult:
    if result.code == 0:
        return result
    unknown = _NO_KIND.search(result.err)
    if unknown is not None:
        raise UserError(_no_such_kind(*unknown.groups()))
    if result.code == NO_ANSWER or _UNREACHABLE.search(result.err):
        fix = "see what `kubectl cluster-info` says, and choose the cluster with `kubectl config use-context` or KUBECONFIG"
        raise UserError(Problem("P704", f"Kubernetes cannot be reached: {result.line}", fix))
    raise ValueError(f"kubectl: {result.line}")


def _no_such_kind(kind: str, api: str) -> Problem:
    operator = outcomes.OPERATORS.get(api.rpartition("/")[0])
    fix = f"install {operator}" if operator else "install the operator that brings it"
    fix += f"; if it is there, in another version: kubectl api-resources | grep {kind}"
    return Problem("P907", f"the cluster knows no {kind} of {api}", fix)


def _one(result: ToolResult) -> Any:
    """The object. What kubectl reads from its input it answers as a list, even if it is one."""
    found = _parsed(result)
    if isinstance(found, Mapping) and found.get("kind") == "List" and len(found.get("items") or ()) == 1:
        return found["items"][0]
    return found


def _parsed(result: ToolResult) -> Any:
    try:
        return json.loads(result.out)
    except ValueError:
        raise ValueError(f"kubectl answered what is not JSON: {result.out[:80]!r}") from None
