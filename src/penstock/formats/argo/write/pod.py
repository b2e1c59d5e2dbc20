"""Containers, volumes and resources of an Argo template. Called by leaf and policies."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.formats import shim
from penstock.formats.argo.write.context import WriteContext, object_name
from penstock.formats.argo.write.expr import text_of
from penstock.formats.argo.write.slots import escaped
from penstock.formats.argo.write.variables import Find, NotInArgo
from penstock.formats.documents import part
from penstock.formats.pods import requests
from penstock.formats.pods.secrets import entries_of, secret_volume, worded
from penstock.formats.values import short_digest
from penstock.graph import quantity
from penstock.graph.model import Container, Mount, Part, Pod, Script, Step, Value, expressions

MAIN: Final = "main"
_BY_WORD: Final = {"node": "-e", "perl": "-e", "ruby": "-e"}
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_MARK: Final = "/tmp/penstock-script"
_BY_FILE: Final = f'printf %s "$1" > {_MARK} && chmod +x {_MARK} && shift && exec "$@"'
_OUTPUTS: Final = "penstock-outputs"
_NOT_OURS: Final = frozenset({"name", "restartPolicy"})
_KEY: Final = re.compile(r"[^-._a-zA-Z0-9]+")
LARGEST_MAP: Final = 900_000
"""The most characters of a ConfigMap, which may have a mebibyte."""


# -- words ------------------------------------------------------------------------------------------------------------


def words(values: Sequence[Value], find: Find, env: Mapping[str, Value] | None = None) -> list[str]:
    return [worded(value, env or {}, lambda value: escaped(text_of(value, find))) for value in values]


def env_of(env: Mapping[str, Value], find: Find) -> list[dict[str, Any]]:
    return [
        one
        for name, value in env.items()
        for one in entries_of(name, value, lambda value: escaped(text_of(value, find)))
    ]


def image_of(context: WriteContext, step: Step, image: Value, find: Find) -> str:
    if image:
        return text_of(image, find)
    context.remark(
        "changed", f"no image is named; it runs in {context.image}", step, f"steps.{step.name}", "Name one: image=…"
    )
    return context.image


def common(env: Mapping[str, Value], workdir: Value, find: Find) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if env:
        found["env"] = env_of(env, find)
    if workdir:
        found["workingDir"] = text_of(workdir, find)
    return found


def container(context: WriteContext, step: Step, action: Container, find: Find) -> dict[str, Any]:
    found: dict[str, Any] = {"image": image_of(context, step, action.image, find)}
    if action.command:
        found["command"] = words(action.command, find, action.env)
    if action.args:
        found["args"] = words(action.args, find, action.env)
    return found | common(action.env, action.workdir, find)


def script(context: WriteContext, step: Step, action: Script, find: Find) -> dict[str, Any]:
    found: dict[str, Any] = {"image": image_of(context, step, action.image, find)}
    found["command"] = words(action.command or ("sh",), find)
    return found | {"source": text_of(action.source, find)} | common(action.env, action.workdir, find)


def thawed(value: Any) -> Any:
    """Lists in place of the model's tuples."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return [thawed(item) for item in value] if isinstance(value, list | tuple) else value


def merged(own: dict[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """Merged with the container fields of a foreign document. Variables with `valueFrom` keep it."""
    found = dict(own)
    for name, value in kept.items():
        if name in _NOT_OURS or (name == "resources" and "resources" in own):
            continue
        if name in ("env", "volumeMounts"):
            key = "name" if name == "env" else "mountPath"
            theirs = {one.get(key) for one in value}
            found[name] = [*(one for one in own.get(name, ()) if one.get(key) not in theirs), *thawed(value)]
        else:
            found.setdefault(name, thawed(value))
    return found


# -- what is asked of a machine ---------------------------------------------------------------------------------------


def resources(step: Step, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Devices need limits equal to their requests, by Kubernetes' rule."""
    kept = part(step.extra, "container", "resources") if kept is None else kept
    if kept and requests.container_resources({"resources": kept}) == dict(step.resources):
        found: dict[str, Any] = thawed(kept)
        return found
    asked = {name: quantity.show(amount, name) for name, amount in step.resources.items()}
    devices = {name: amount for name, amount in asked.items() if "/" in name}
    return {**({"requests": asked} if asked else {}), **({"limits": devices} if devices else {})}


# -- volumes ----------------------------------------------------------------------------------------------------------


def mount_all(
    context: WriteContext, step: Step, find: Find, body: dict[str, Any], volumes: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The mounts of its containers; volumes and files that they need are added to the template."""
    found: list[dict[str, Any]] = []
    kept = {str(one.get("name")): one for one in part(step.extra, "pod").get("volumes", ()) if isinstance(one, Mapping)}
    known: set[str] = set()
    for mount in step.mounts:
        if not mount.path.startswith("/"):
            raise NotInArgo(f"the mount {mount.name} has the relative path {mount.path}", "give it an absolute path")
        name = object_name(mount.name, 63)
        entry: dict[str, Any] = {"name": name, "mountPath": mount.path}
        if mount.sub_path:
            entry["subPath"] = text_of(mount.sub_path, find)
        if mount.read_only:
            entry["readOnly"] = True
        if mount.name in kept:
            volume: dict[str, Any] | None = {**thawed(kept[mount.name]), "name": name}
        else:
            volume = _volume(context, step, mount, name, find, body)
        if volume is not None and name not in known:
            volumes.append(volume)
        known.add(name)
        if volume is not None or mount.scope == "run":
            found.append(entry)
    # A container's own fields may mount a volume that no mount of the model names.
    for given, one in kept.items():
        if (name := object_name(given, 63)) not in known:
            volumes.append({**thawed(one), "name": name})
    if any(output.path is None for output in step.outputs) and isinstance(step.action, Container | Script | Pod):
        volumes.append({"name": _OUTPUTS, "emptyDir": {}})
        found.append({"name": _OUTPUTS, "mountPath": shim.OUTPUTS})
    return found


def _volume(
    context: WriteContext, step: Step, mount: Mount, name: str, find: Find, body: dict[str, Any]
) -> dict[str, Any] | None:
    """None: the volume is not part of the template."""
    secrets = None
    if mount.scope == "given":
        secrets = secret_volume(mount.files, lambda files: _config_map(context, replace(mount, files=files)))
    if secrets is not None:
        return {"name": name, **secrets}
    moving = any(True for _ in expressions(mount.files))
    if mount.scope == "given" and mount.files and not moving:
        return {"name": name, "configMap": _config_map(context, mount)}
    if mount.files:
        _lay_files(mount, find, body)
    if mount.scope == "run":
        _claim(context, step, mount, name)
        return None
    if mount.scope == "given" and mount.files:
        return None
    if mount.scope == "given":
        message = "nothing is known of what is in this folder; it is empty"
        context.remark("changed", message, step, f"steps.{step.name}.mounts.{mount.name}")
    return {"name": name, "emptyDir": {}}


def _claim(context: WriteContext, step: Step, mount: Mount, name: str) -> None:
    if name in context.claims or name in context.volumes:
        return
    message = f"the folder {mount.name}, which the tasks of a run share, is a volume of 1Gi that one node may write to"
    context.remark(
        "changed", message, step, f"steps.{step.name}.mounts.{mount.name}", "Change volumeClaimTemplates to fit."
    )
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    context.claims[name] = {"metadata": {"name": name}, "spec": spec}


def _config_map(context: WriteContext, mount: Mount) -> dict[str, Any]:
    data: dict[str, str] = {}
    items = []
    for file, text in mount.files.items():
        key = _KEY.sub("-", file)[:200] or "file"
        while key in data:
            key += "-"
        data[key] = str(text)
        items.append({"key": key, "path": posixpath.normpath(file)})
    if sum(map(len, data.values())) > LARGEST_MAP:
        raise NotInArgo(f"the files of {mount.name} do not fit a ConfigMap", "put them into the image", "P843")
    digest = short_digest(repr(sorted(data.items())))
    name = f"{object_name(f'{context.name}-{mount.name}', 54)}-{digest}"
    context.maps[name] = data
    plain = all(one["key"] == one["path"] for one in items)
    return {"name": name} if plain else {"name": name, "items": items}


def _lay_files(mount: Mount, find: Find, body: dict[str, Any]) -> None:
    """Files whose text only the run knows become artifacts."""
    artifacts = body.setdefault("inputs", {}).setdefault("artifacts", [])
    for number, (file, text) in enumerate(mount.files.items()):
        path = posixpath.join(mount.path, file)
        name = f"{object_name(mount.name, 40)}-file-{number}"
        artifacts.append({"name": name, "path": path, "raw": {"data": text_of(text, find)}})


# -- several programs -------------------------------------------------------------------------------------------------


def pod_bodies(
    context: WriteContext, step: Step, pod: Pod, find: Find, mounts: list[dict[str, Any]], told: list[dict[str, str]]
) -> dict[str, Any]:
    """A container with initContainers and sidecars, or a containerSet."""
    for one in pod.parts:
        if one.when or one.results or one.on_error != "stop" or one.timeout is not None:
            why = f"its program {one.name} depends on how others in the same pod fared"
            raise NotInArgo(why, "make the programs steps of their own, or write it as a Tekton task")
    staying = [one for one in pod.parts if one.sidecar]
    waits = _waits(pod)
    names = _part_names([one for one in pod.parts if not one.sidecar])
    if not names:
        raise NotInArgo("its pod has no program that ends")
    built: dict[str, dict[str, Any]] = {}
    for one in pod.parts:
        entry = {"name": names.get(one.name, one.name), **_part(context, step, one, find)}
        if told or "env" in entry:
            entry["env"] = [*told, *entry.get("env", ())]
        if mounts:
            entry["volumeMounts"] = list(mounts)
        built[one.name] = {**merged(entry, part(step.extra, "containers", one.name)), "name": entry["name"]}
    _share_resources(step, built, names)
    before = _chain(waits)
    found: dict[str, Any] = {}
    if before is not None:
        *first, last = before
        main = next(one for one in pod.parts if one.name == last)
        kind = "script" if main.source is not None and not main.args else "container"
        found[kind] = {name: value for name, value in built[last].items() if name != "name"}
        if kind == "script":
            found[kind].pop("args", None)
            found[kind] |= {"command": words(main.command or ("sh",), find), "source": text_of(main.source, find)}
        if first:
            found["initContainers"] = [{**built[name], "mirrorVolumeMounts": True} for name in first]
    else:
        containers = [
            {**built[name], **({"dependencies": [names[up] for up in ups]} if ups else {})}
            for name, ups in waits.items()
        ]
        found["containerSet"] = {"containers": containers}
    if staying:
        found["sidecars"] = [{**built[one.name], "mirrorVolumeMounts": True} for one in staying]
    return found


def _waits(pod: Pod) -> dict[str, tuple[str, ...]]:
    """Part -> the parts that it waits for; nothing waits for a sidecar."""
    found: dict[str, tuple[str, ...]] = {}
    staying = {one.name for one in pod.parts if one.sidecar}
    previous: tuple[str, ...] = ()
    for one in pod.parts:
        if not one.sidecar:
            found[one.name] = tuple(up for up in (previous if one.needs is None else one.needs) if up not in staying)
            previous = (one.name,)
    return found


def _chain(waits: Mapping[str, tuple[str, ...]]) -> list[str] | None:
    """The parts in order, if each waits only for the one before it."""
    names = list(waits)
    alone = all(waits[name] == ((names[at - 1],) if at else ()) for at, name in enumerate(names))
    return names if alone else None


def _part_names(parts: Sequence[Part]) -> dict[str, str]:
    """Argo reads outputs from the container called main: the last part, if none has that name."""
    found = {one.name: object_name(one.name, 63) for one in parts}
    if parts and MAIN not in found:
        found[parts[-1].name] = MAIN
    return found


def _part(context: WriteContext, step: Step, one: Part, find: Find) -> dict[str, Any]:
    found: dict[str, Any] = {"image": image_of(context, step, one.image, find)}
    command = words(one.command, find)
    args = words(one.args, find)
    if one.source is not None:
        command, args = _handed(command or ["sh"], escaped(text_of(one.source, find)), one.name, args)
    if command:
        found["command"] = command
    if args:
        found["args"] = args
    return found | common(one.env, one.workdir, find)


def _handed(command: list[str], source: str, name: str, args: list[str]) -> tuple[list[str], list[str]]:
    """A script as an argument of its interpreter; as a file if the interpreter takes no script argument."""
    base = posixpath.basename(command[0])
    if base == "env":
        base = next((posixpath.basename(word) for word in command[1:] if word[0] != "-" and "=" not in word), "")
    if base in _SHELLS:
        return [*command, "-c"], [source, name, *args]
    if base.startswith("python") or base in _BY_WORD:
        return [*command, _BY_WORD.get(base, "-c")], [source, *args]
    return ["sh", "-c", _BY_FILE], ["sh", source, *command, _MARK, *args]


def _share_resources(step: Step, built: Mapping[str, dict[str, Any]], names: Mapping[str, str]) -> None:
    """The requests of each container, if they add up to the step's resources; otherwise main requests everything."""
    total: dict[str, int] = {}
    for one in built.values():
        for name, amount in requests.container_resources(one).items():
            total[name] = total.get(name, 0) + amount
    if total == dict(step.resources):
        return
    for one in built.values():
        one.pop("resources", None)
    asked = resources(step, {})
    if asked:
        main = (
            next(name for name, shown in names.items() if shown == MAIN)
            if MAIN in names.values()
            else next(iter(names))
        )
        built[main]["resources"] = asked
