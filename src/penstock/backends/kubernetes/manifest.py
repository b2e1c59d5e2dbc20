"""What the pods of an attempt do -> its Job. Called by attempt. Pure.

The Job is what the attempt is, and nothing else: the same attempt gives the same Job, whichever engine asks (ENGINE alone is added when it
is created). `backoffLimit` is 0, for the engine owns retries. Replicas find the first of them by a headless Service. The pod's scratch
folder is /tmp/penstock of its helpers, and parts of it are mounted in the task's own container.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from penstock.backends.attempt import COORDINATOR
from penstock.backends.base import AttemptSpec
from penstock.backends.kubernetes import names
from penstock.backends.kubernetes.options import ARTIFACTS, KubernetesOptions
from penstock.backends.kubernetes.programs import INSIDE, MAIN, Place, Program, TextFile, Work
from penstock.backends.kubernetes.scheduled import with_queue
from penstock.formats.pods.placement import placement_fields
from penstock.graph import quantity
from penstock.kubernetes.objects import Object

DAY: Final = 24 * 3600
"""Seconds after which Kubernetes removes a Job that has ended and that no engine has removed."""
GRACE: Final = 30
HELPER: Final = {"requests": {"cpu": "50m", "memory": "64Mi"}}
_REPLICA: Final = "$(PENSTOCK_REPLICA)"
_OF_STAYING: Final = frozenset({"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"})


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
    data = {f"env-{number}": text for number, (_, _, text) in enumerate(work.secrets())}
    data |= {f"file-{number}": one.text for number, one in enumerate(work.texts()) if one.secret}
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
    extra = spec.step.extra
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
    pod |= _containers(spec, work, options, name)
    template: dict[str, Any] = {"metadata": {"labels": dict(labels), "annotations": _texts(work)}, "spec": pod}
    for kept in ("metadata", "pod"):
        over = extra.get(kept)
        if isinstance(over, Mapping):
            template = merged(template, {"metadata" if kept == "metadata" else "spec": over})
    template = with_overlay(template, options.overlay, {program.name for program in work.programs})
    template["metadata"]["labels"] |= labels
    template["spec"]["restartPolicy"] = "Never"
    if spec.step.replicas > 1:  # Kubernetes gives each pod of an indexed Job its host name
        template["spec"].pop("hostname", None)
        template["spec"]["subdomain"] = name
    return template


def _containers(spec: AttemptSpec, work: Work, options: KubernetesOptions, name: str) -> dict[str, Any]:
    """initContainers, if there are any, and containers. What must be done one after another is done by init containers."""
    own = [(program, _own(program, spec, work, options, name)) for program in work.programs]
    stay = [{**made, "restartPolicy": "Always"} for program, made in own if program.sidecar]
    plain = [made for program, made in own if not program.sidecar]
    first = [*([_helper("fetch", work.fetch, options)] if work.fetch else []), *stay]
    if work.leads:
        last = [*plain, _leader(work, options, name)]
    elif work.put:
        first, last = [*first, *map(_once, plain)], [_helper("put", work.put, options)]
    else:
        first, last = [*first, *map(_once, plain[:-1])], plain[-1:]
    return {**({"initContainers": first} if first else {}), "containers": last}


def _once(container: dict[str, Any]) -> dict[str, Any]:
    """As an init container that ends: Kubernetes refuses one with probes."""
    return {key: value for key, value in container.items() if key not in _OF_STAYING}


def _own(program: Program, spec: AttemptSpec, work: Work, options: KubernetesOptions, name: str) -> dict[str, Any]:
    """A container of the task, with what its manifest says of it and we do not."""
    made = _program(program, spec, work, options, name)
    extra = spec.step.extra
    several = extra.get("containers")
    more = several.get(program.part) if program.part and isinstance(several, Mapping) else None
    if more is None and len(work.programs) == 1:
        more = extra.get("container")
    if not isinstance(more, Mapping):
        return made
    kept = {key: value for key, value in more.items() if key not in ("name", "image")}
    if "env" in kept:
        kept["env"] = [one for one in kept["env"] if _is_of_the_cluster(one, {*_env_names(work), *_env_names(program)})]
    found: dict[str, Any] = merged(made, kept)
    return found


def _env_names(one: Work | Program) -> set[str]:
    return {*one.env, *one.secret_env}


def _is_of_the_cluster(variable: Any, known: Collection[str]) -> bool:
    """A variable of a manifest that names where its text is. What the pod says of itself is known there only; what is known here need not be there."""
    source = variable.get("valueFrom") if isinstance(variable, Mapping) else None
    is_known = isinstance(variable, Mapping) and variable.get("name") in known
    return not is_known or (isinstance(source, Mapping) and bool({"fieldRef", "resourceFieldRef"} & set(source)))


def _program(program: Program, spec: AttemptSpec, work: Work, options: KubernetesOptions, name: str) -> dict[str, Any]:
    plain = {**work.env, **program.env}
    env: list[dict[str, Any]] = [_replica()]
    if spec.step.replicas > 1 and COORDINATOR not in {*_env_names(work), *_env_names(program)}:
        env.append({"name": COORDINATOR, "value": f"{name}-0.{name}"})
    hidden = {
        key: f"env-{number}"
        for number, (whose, key, _) in enumerate(work.secrets())
        if whose is program or (whose is None and key not in program.env)
    }
    env += [{"name": key, "value": _escaped(text)} for key, text in plain.items() if key not in hidden]
    for key, place in hidden.items():
        env.append({"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": place}}})
    mounts = _mounts([*work.places, *program.places], [*work.files, *program.files], work, options)
    if work.is_function:
        mounts += _helper_mounts(options)
    found: dict[str, Any] = {
        "name": program.name,
        "image": program.image,
        "env": env,
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if program.command:
        found["command"] = [_escaped(word) for word in program.command]
    if program.args:
        found["args"] = [_escaped(word) for word in program.args]
    if program.workdir:
        found["workingDir"] = program.workdir
    asked = _resources(program, spec, work)
    if asked:
        found["resources"] = asked
    return found


def _replica() -> dict[str, Any]:
    field = f"metadata.annotations['{names.INDEX}']"
    return {"name": "PENSTOCK_REPLICA", "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _resources(program: Program, spec: AttemptSpec, work: Work) -> dict[str, Any]:
    """What the step asks for. Parts that run one after another ask for all of it, each; of those side by side one does for all, and none
    gets more memory."""
    asked = {key: quantity.show(amount, key) for key, amount in sorted(spec.step.resources.items()) if amount}
    if not asked or program.sidecar:
        return {}
    limits = {key: amount for key, amount in asked.items() if key != "cpu"}
    if work.leads and program is not _heaviest(work):
        memory = {key: amount for key, amount in limits.items() if key == "memory"}
        return {"requests": dict.fromkeys(memory, "0"), "limits": memory} if memory else {}
    return {"requests": asked, **({"limits": limits} if limits else {})}


def _heaviest(work: Work) -> Program:
    """The part that asks for all."""
    return next((one for one in work.programs if one.name == MAIN), work.programs[-1])


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


def _leader(work: Work, options: KubernetesOptions, name: str) -> dict[str, Any]:
    found = _helper("put", work.put, options)
    mounts = _mounts(work.plan_places, work.plan, work, options)
    return {**found, "env": [_replica()], "volumeMounts": [*found["volumeMounts"], *mounts]}


def _mounts(
    places: Iterable[Place], files: Iterable[TextFile], work: Work, options: KubernetesOptions
) -> list[dict[str, Any]]:
    numbers = {id(one): number for number, one in enumerate(work.texts())}
    mounts = [_mount(one, options) for one in sorted(places, key=lambda one: one.path)]
    for file in files:
        volume = "secret" if file.secret else "texts"
        mounts.append(
            {"name": volume, "mountPath": file.path, "subPath": f"file-{numbers[id(file)]}", "readOnly": True}
        )
    return mounts


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
    texts = [f"file-{number}" for number, one in enumerate(work.texts()) if not one.secret]
    if texts:
        items = [{"path": key, "fieldRef": {"fieldPath": f"metadata.annotations['penstock/{key}']"}} for key in texts]
        volumes.append({"name": "texts", "downwardAPI": {"defaultMode": 0o755, "items": items}})
    if any(one.secret for one in work.texts()):
        volumes.append({"name": "secret", "secret": {"secretName": name, "defaultMode": 0o755}})
    shared = any(one.shared for one in work.all_places())
    if options.volume is not None and (shared or (work.needs_store and options.store == ARTIFACTS)):
        volumes.append({"name": "home", **options.volume.source()})
    return volumes


def _texts(work: Work) -> dict[str, str]:
    return {f"penstock/file-{number}": one.text for number, one in enumerate(work.texts()) if not one.secret}


# -- overlays ---------------------------------------------------------------------------------------------------------


def with_overlay(template: dict[str, Any], overlay: Mapping[str, Any], own: Collection[str]) -> dict[str, Any]:
    """The pod template with that of the user merged in. Its container `main` is those of the task (`own`), wherever they are; `helper` is those of ours."""
    if not overlay:
        return template
    spec = dict(overlay.get("spec") or {})
    given = {str(one.get("name")): one for one in spec.pop("containers", None) or []}
    found: dict[str, Any] = merged(template, {"metadata": overlay.get("metadata") or {}, "spec": spec})
    for kind in ("initContainers", "containers"):
        for number, one in enumerate(found["spec"].get(kind) or []):
            kind_ = MAIN if one["name"] in own else "helper" if one["name"] in ("fetch", "put") else ""
            extra = given.get(kind_)
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
