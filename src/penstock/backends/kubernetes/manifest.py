"""What the pods of an attempt do -> its Job. Called by attempt. Pure.

The Job is what the attempt is, and nothing else: the same attempt gives the same Job, whichever engine asks (ENGINE alone is added when it
is created). `backoffLimit` is 0, for the engine owns retries. Replicas find the first of them by a headless Service. The pod's scratch
folder is /tmp/penstock of its helpers, and parts of it are mounted in the task's own container.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.backends.attempt import COORDINATOR
from penstock.backends.base import AttemptSpec
from penstock.backends.kubernetes import names
from penstock.backends.kubernetes.options import ARTIFACTS, KubernetesOptions
from penstock.backends.kubernetes.scheduled import with_queue
from penstock.backends.kubernetes.work import INSIDE, Place, Work
from penstock.formats.pods.placement import placement_fields
from penstock.graph import quantity
from penstock.kubernetes.objects import Object

DAY: Final = 24 * 3600
"""Seconds after which Kubernetes removes a Job that has ended and that no engine has removed."""
GRACE: Final = 30
HELPER: Final = {"requests": {"cpu": "50m", "memory": "64Mi"}}
_REPLICA: Final = "$(PENSTOCK_REPLICA)"


def job_of(spec: AttemptSpec, work: Work, options: KubernetesOptions, owner: str, namespace: str) -> dict[str, Any]:
    """The Job, with its digest among its annotations. Raises UserError: its queue cannot take it."""
    name = names.job_name(owner, names.attempt_key(spec))
    labels = {
        names.MANAGED_BY: "penstock",
        names.STORE: owner,
        names.RUN: names.label(spec.run),
        names.STEP: names.label(spec.step.name),
        names.ATTEMPT: str(spec.since or spec.attempt),
    }
    replicas = max(1, spec.step.replicas)
    job: dict[str, Any] = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "completions": replicas,
            "parallelism": replicas,
            "completionMode": "Indexed",
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": DAY,
            "template": _template(spec, work, options, name, labels),
        },
    }
    job = with_queue(job, spec, options)
    text = json.dumps(job, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    job["metadata"]["annotations"] = {
        **job["metadata"].get("annotations", {}),
        names.RUN: spec.run,
        names.TASK: spec.task,
        names.DIGEST: digest,
    }
    return job


def warm_job_of(
    spec: AttemptSpec, work: Work, options: KubernetesOptions, owner: str, name: str, shape: str
) -> dict[str, Any]:
    """The Job of a warm pod, which makes calls like that of `spec`. Without a name and a shape it is what the shape is made from."""
    labels = {names.MANAGED_BY: "penstock", names.STORE: owner, names.POOL: shape}
    text = json.dumps([name, shape])
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {names.RUN: spec.run, names.DIGEST: hashlib.sha256(text.encode()).hexdigest()},
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "completionMode": "Indexed",
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": DAY,
            "template": _template(spec, work, options, name, labels),
        },
    }


def secret_of(work: Work, job: Object) -> dict[str, Any] | None:
    """The Secret with the texts of an attempt, which goes when its Job goes. None: it has none."""
    texts = dict(work.secret_env)
    data = {f"env-{number}": texts[name] for number, name in enumerate(sorted(texts))}
    data |= {f"file-{number}": one.text for number, one in enumerate(work.files) if one.secret}
    if not data:
        return None
    return {"metadata": _beside(job), "stringData": data, "immutable": True}


def service_of(spec: AttemptSpec, job: Object) -> dict[str, Any] | None:
    """What gives the pods of a gang their names in the cluster's DNS, before they are ready; it goes when its Job goes. None: it is one pod."""
    if spec.step.replicas < 2:
        return None
    selector = {names.JOB_NAME: job["metadata"]["name"]}
    return {
        "metadata": _beside(job),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector},
    }


def _beside(job: Object) -> dict[str, Any]:
    """Metadata of what has the name of a Job and goes with it."""
    meta = job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "labels": {key: value for key, value in meta["labels"].items() if key != names.STEP},
        "ownerReferences": [owner],
    }


# -- pods -------------------------------------------------------------------------------------------------------------


def _template(
    spec: AttemptSpec, work: Work, options: KubernetesOptions, name: str, labels: Mapping[str, str]
) -> dict[str, Any]:
    main = _main(spec, work, options, name)
    extra = spec.step.extra
    container = extra.get("container")
    if isinstance(container, Mapping):
        more = {key: value for key, value in container.items() if key not in ("name", "image")}
        if "env" in more:
            more["env"] = [one for one in more["env"] if _is_of_the_cluster(one, work)]
        main = merged(main, more)
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "enableServiceLinks": False,
        "automountServiceAccountToken": bool(options.service_account),
        "volumes": _volumes(work, options, name),
    }
    if options.service_account:
        pod["serviceAccountName"] = options.service_account
    pod |= placement_fields(spec.step.placement)
    first = [_helper("fetch", work.fetch, options)] if work.fetch else []
    if work.put:
        pod |= {"initContainers": [*first, main], "containers": [_helper("put", work.put, options)]}
    else:
        pod |= {**({"initContainers": first} if first else {}), "containers": [main]}
    template: dict[str, Any] = {"metadata": {"labels": dict(labels), "annotations": _texts(work)}, "spec": pod}
    for kept in ("metadata", "pod"):
        over = extra.get(kept)
        if isinstance(over, Mapping):
            template = merged(template, {"metadata" if kept == "metadata" else "spec": over})
    template = with_overlay(template, options.overlay)
    template["metadata"]["labels"] |= labels
    template["spec"]["restartPolicy"] = "Never"
    if spec.step.replicas > 1:  # Kubernetes gives each pod of an indexed Job its host name
        template["spec"].pop("hostname", None)
        template["spec"]["subdomain"] = name
    return template


def _is_of_the_cluster(variable: Any, work: Work) -> bool:
    """A variable of a manifest that names where its text is. What the pod says of itself is known there only; what is known here need not be there."""
    source = variable.get("valueFrom") if isinstance(variable, Mapping) else None
    known = isinstance(variable, Mapping) and (
        variable.get("name") in work.env or variable.get("name") in work.secret_env
    )
    return not known or (isinstance(source, Mapping) and bool({"fieldRef", "resourceFieldRef"} & set(source)))


def _main(spec: AttemptSpec, work: Work, options: KubernetesOptions, name: str) -> dict[str, Any]:
    env: list[dict[str, Any]] = [{"name": key, "value": _escaped(value)} for key, value in work.env.items()]
    for number, key in enumerate(sorted(work.secret_env)):
        env.append({"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": f"env-{number}"}}})
    field = f"metadata.annotations['{names.INDEX}']"
    env.insert(0, {"name": "PENSTOCK_REPLICA", "valueFrom": {"fieldRef": {"fieldPath": field}}})
    if spec.step.replicas > 1 and COORDINATOR not in work.env and COORDINATOR not in work.secret_env:
        env.insert(1, {"name": COORDINATOR, "value": f"{name}-0.{name}"})
    mounts = [_mount(one, options) for one in sorted(work.places, key=lambda one: one.path)]
    for number, file in enumerate(work.files):
        volume = "secret" if file.secret else "texts"
        mounts.append({"name": volume, "mountPath": file.path, "subPath": f"file-{number}", "readOnly": True})
    if work.is_function:
        mounts += _helper_mounts(options)
    found: dict[str, Any] = {
        "name": "main",
        "image": work.image,
        "env": env,
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if work.command:
        found["command"] = [_escaped(word) for word in work.command]
    if work.args:
        found["args"] = [_escaped(word) for word in work.args]
    if work.workdir:
        found["workingDir"] = work.workdir
    asked = {key: quantity.show(amount, key) for key, amount in sorted(spec.step.resources.items()) if amount}
    if asked:
        limits = {key: amount for key, amount in asked.items() if key != "cpu"}
        found["resources"] = {"requests": asked, **({"limits": limits} if limits else {})}
    return found


def _escaped(text: str) -> str:
    """Kubernetes replaces `$(NAME)` in words and variables, and `$$` by `$`; a command gets its words as they are, as everywhere else. The number of the
    replica alone is known only there."""
    return _REPLICA.join(piece.replace("$", "$$") for piece in text.split(_REPLICA))


def _helper(name: str, command: list[str], options: KubernetesOptions) -> dict[str, Any]:
    return {
        "name": name,
        "image": options.image,
        "command": [_escaped(word) for word in command],
        "resources": HELPER,
        "volumeMounts": _helper_mounts(options),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _helper_mounts(options: KubernetesOptions) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [{"name": "scratch", "mountPath": INSIDE}]
    if options.store == ARTIFACTS and options.volume is not None:
        sub = options.volume.inside(options.store_folder)
        mounts.append({"name": "home", "mountPath": ARTIFACTS, **({"subPath": sub} if sub else {})})
    return mounts


def _mount(one: Place, options: KubernetesOptions) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "scratch", "mountPath": one.path, "subPath": one.sub_path}
    if one.shared and options.volume is not None:
        found |= {"name": "home", "subPath": options.volume.inside(one.sub_path)}
    return {**found, "readOnly": True} if one.read_only else found


def _volumes(work: Work, options: KubernetesOptions, name: str) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [{"name": "scratch", "emptyDir": {}}]
    texts = [f"file-{number}" for number, one in enumerate(work.files) if not one.secret]
    if texts:
        items = [{"path": key, "fieldRef": {"fieldPath": f"metadata.annotations['penstock/{key}']"}} for key in texts]
        volumes.append({"name": "texts", "downwardAPI": {"defaultMode": 0o755, "items": items}})
    if any(one.secret for one in work.files):
        volumes.append({"name": "secret", "secret": {"secretName": name, "defaultMode": 0o755}})
    shared = any(one.shared for one in work.places)
    if options.volume is not None and (shared or (work.needs_store and options.store == ARTIFACTS)):
        volumes.append({"name": "home", **options.volume.source()})
    return volumes


def _texts(work: Work) -> dict[str, str]:
    return {f"penstock/file-{number}": one.text for number, one in enumerate(work.files) if not one.secret}


# -- overlays ---------------------------------------------------------------------------------------------------------


def with_overlay(template: dict[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """The pod template with that of the user merged in. Its container `main` is the task's, wherever that is; `helper` is those of ours."""
    if not overlay:
        return template
    spec = dict(overlay.get("spec") or {})
    own = {str(one.get("name")): one for one in spec.pop("containers", None) or []}
    found: dict[str, Any] = merged(template, {"metadata": overlay.get("metadata") or {}, "spec": spec})
    for kind in ("initContainers", "containers"):
        for number, one in enumerate(found["spec"].get(kind) or []):
            extra = own.get("main" if one["name"] == "main" else "helper" if one["name"] in ("fetch", "put") else "")
            if extra:
                found["spec"][kind][number] = merged(one, {key: value for key, value in extra.items() if key != "name"})
    return found


def merged(base: Any, more: Any) -> Any:
    """Maps are merged; lists of named things by name (of mounts: by path), and others are put one after the other. What cannot be merged
    is replaced. Words of a command are replaced as a whole. A variable has a value or a reference, not both."""
    if isinstance(base, Mapping) and isinstance(more, Mapping):
        found = dict(base)
        for key, value in more.items():
            whole = key in ("command", "args") or key not in found
            found[key] = _thawed(value) if whole else merged(found[key], value)
        return found
    if isinstance(base, list) and isinstance(more, list | tuple):
        return _joined(base, list(more))
    return _thawed(more)


def _joined(base: list[Any], more: list[Any]) -> list[Any]:
    found = list(base)
    for one in more:
        key = _key(one)
        place = next((at for at, other in enumerate(found) if key is not None and _key(other) == key), None)
        if place is None:
            found.append(_thawed(one))
        else:
            other = "valueFrom" if "value" in one else "value" if "valueFrom" in one else ""
            here = found[place] if not other else {key: value for key, value in found[place].items() if key != other}
            found[place] = merged(here, one)
    return found


def _key(one: Any) -> Any:
    return (one.get("mountPath") or one.get("name")) if isinstance(one, Mapping) else None


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in value.items()}
    return [_thawed(item) for item in value] if isinstance(value, list | tuple) else value
