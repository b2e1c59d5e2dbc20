"""The objects of a cluster, read with the user's own kubectl: one call for each kind, several at the same time. Called by the commands.

It is a `Lookup`, so that a client of another kind can stand in its place. Every error says what to do about it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

from penstock.backends.tools import find, last_line
from penstock.controller.objects import ApiResource, Lookup, Object
from penstock.errors import NotFound, Problem, UserError

SECONDS = 30
"""For one answer of the cluster."""
AT_ONCE = 8
GROUP = "kueue.x-k8s.io"
_DENIED = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)"')
_NO_KIND = "could not find the requested resource"


class Denied(UserError):
    """The user may not read this."""

    def __init__(self, user: str, verb: str, resource: str) -> None:
        self.user, self.verb, self.resource = user, verb, resource
        super().__init__(denied([self]))


class KubectlLookup:
    """One cluster, by a kubeconfig and a context."""

    def __init__(self, context: str = "", kubeconfig: str = "", environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        words = find(self._environ, "PENSTOCK_KUBECTL", ["kubectl"])
        if words is None:
            fix = "install it, or name it in PENSTOCK_KUBECTL"
            raise NotFound(Problem("P870", "there is no kubectl here", fix))
        self._words = [*words, f"--request-timeout={SECONDS}s"]
        self._words += ["--context", context] if context else []
        self._words += ["--kubeconfig", kubeconfig] if kubeconfig else []

    def namespace(self) -> str:
        """The one that the kubeconfig has chosen."""
        code, out, err = self._run("config", "view", "--minify", "--output", "jsonpath={..namespace}")
        if code:
            raise unreachable(last_line(err))
        return out.strip() or "default"

    def get(self, resource: ApiResource, namespace: str, name: str) -> Object | None:
        """None if there is none. Raises NotFound if the cluster does not have the kind, UserError if it cannot be read."""
        return self._raw(resource, resource.path(namespace, quote(name, safe="")))

    def list(self, resource: ApiResource, namespace: str = "") -> Sequence[Object]:
        """Raises as `get`."""
        query = f"?labelSelector={quote(resource.selector)}" if resource.selector else ""
        return self._listed(resource, resource.path(namespace) + query)

    def _listed(self, resource: ApiResource, path: str) -> Sequence[Object]:
        found = self._raw(resource, path)
        if found is None:
            raise no_kind(resource, ())
        # The items of a list have neither apiVersion nor kind.
        own = {"apiVersion": resource.api, "kind": resource.kind}
        return [{**own, **item} for item in found.get("items") or ()]

    def _raw(self, resource: ApiResource, path: str) -> dict[str, Any] | None:
        code, out, err = self._run("get", "--raw", path)
        if code == 0:
            try:
                found: dict[str, Any] = json.loads(out)
            except ValueError:
                raise unreachable(f"kubectl answered what is not JSON: {out[:80]!r}") from None
            return found
        if refused := _DENIED.search(err):
            raise Denied(refused["user"], refused["verb"], refused["resource"])
        if "(Forbidden)" in err:
            raise Denied("", "get", resource.plural)
        if _NO_KIND in err:
            raise no_kind(resource, self._versions(resource))
        if "(NotFound)" in err:
            return None
        raise unreachable(last_line(err) or last_line(out))

    def _versions(self, resource: ApiResource) -> Sequence[str]:
        """In which the cluster has the group of this kind."""
        code, out, _ = self._run("get", "--raw", f"/apis/{resource.api.partition('/')[0]}")
        return [str(one.get("version")) for one in json.loads(out).get("versions", ())] if code == 0 else ()

    def _run(self, *words: str) -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                [*self._words, *words],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS + 15,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, "", f"kubectl did not answer within {SECONDS + 15} seconds"
        except OSError as error:
            return 1, "", f"kubectl cannot be started: {error}"
        return done.returncode, done.stdout, done.stderr


def read_all(lookup: Lookup, resources: Sequence[ApiResource]) -> dict[ApiResource, Sequence[Object]]:
    """Every object of these kinds, read at the same time. Raises UserError; if rights are missing, with all of them."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {one: pool.submit(lookup.list, one) for one in resources}
    errors = [error for future in futures.values() if (error := future.exception()) is not None]
    refused = [error for error in errors if isinstance(error, Denied)]
    for error in errors:
        if not isinstance(error, Denied):
            raise error
    if refused:
        raise UserError(denied(refused))
    return {one: future.result() for one, future in futures.items()}


def unreachable(reason: str) -> UserError:
    fix = "see what `kubectl cluster-info` says; choose a cluster with --context, --kubeconfig or KUBECONFIG"
    return UserError(Problem("P890", f"the cluster cannot be read: {reason or 'kubectl gave no reason'}", fix))


def denied(refused: Sequence[Denied]) -> Problem:
    """One problem for all rights that are missing, with the command that gives them."""
    user = next((one.user for one in refused if one.user), "")
    what = sorted({one.resource for one in refused})
    full = ",".join(f"{one}.{GROUP}" if one in _KUEUE else one for one in what)
    fix = (
        f"an administrator can allow it: kubectl create clusterrole penstock-reader --verb=get,list --resource={full} && "
        f"kubectl create clusterrolebinding penstock-reader --clusterrole=penstock-reader --user={user or 'NAME'}"
    )
    who = f"{user} may not" if user else "you may not"
    verbs = " or ".join(sorted({one.verb for one in refused}))
    return Problem("P891", f"{who} {verbs} {', '.join(what)} in this cluster", fix)


_KUEUE = (
    "resourceflavors",
    "clusterqueues",
    "cohorts",
    "localqueues",
    "workloadpriorityclasses",
    "admissionchecks",
    "workloads",
)


def no_kind(resource: ApiResource, versions: Sequence[str]) -> NotFound:
    """`versions`: in which the cluster has the group; none if it does not have it."""
    group, _, wanted = resource.api.partition("/")
    if group != GROUP:
        message = f"this cluster has no {resource.plural} of {resource.api}"
        fix = "install what they belong to, or choose another cluster with --context"
        if versions:
            message += f", only of {', '.join(versions)}"
        return NotFound(Problem("P893", message, fix))
    message, fix = "Kueue is not installed in this cluster", "install it: https://kueue.sigs.k8s.io/docs/installation"
    if versions:
        message = f"this cluster has Kueue's {resource.plural} not as {wanted}, only {', '.join(versions)}"
        fix = f"install a newer Kueue: Penstock reads {wanted}, which Kueue has since 0.15"
    return NotFound(Problem("P892", message, f"{fix}; or choose another cluster with --context"))
