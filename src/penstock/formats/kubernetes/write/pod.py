"""A step whose values are all known -> its pod template, for a JobSet or a Job. Called by write.jobset and write.job.

What pods.read kept in `extra` goes back to its place. Resources are those of the whole pod: if the requests of the containers still add up to
them they are kept, otherwise the first container requests everything. Text that Kubernetes would take for a variable (`$(NAME)`) is
escaped.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

from penstock.errors import Problem, UserError
from penstock.expressions.evaluate import to_text
from penstock.formats import shim
from penstock.formats.documents import part
from penstock.formats.kubernetes.conventions import JOB_BACKOFF, POD_BACKOFF
from penstock.formats.kubernetes.unroll import INDEX, PodKind
from penstock.formats.labels import DESCRIPTION, PRIORITY, QUEUE
from penstock.formats.pods import requests
from penstock.formats.pods.names import label
from penstock.formats.pods.placement import placement_fields
from penstock.formats.pods.secrets import entries_of, secret_volume, worded
from penstock.formats.pods.variables import INDEX_FIELD, INDEX_NAME, REPLICA, expand
from penstock.formats.report import Report
from penstock.formats.values import short_digest, thawed
from penstock.graph import quantity
from penstock.graph.model import (
    Backoff,
    Container,
    Function,
    Mount,
    Part,
    Pod,
    Retry,
    Script,
    Step,
    Workflow,
)

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_BY_WORD: Final = {"node": "-e", "perl": "-e", "ruby": "-e"}
_LONGEST: Final = 100_000
"""Characters of one word of a command."""
_CHUNK: Final = 700_000
"""Characters of one ConfigMap: it may have a mebibyte."""
_MARKS: Final = re.compile(f"({re.escape(INDEX)}|{re.escape(REPLICA)})")
_WRAPPER: Final = 'printf %s "$1" > /tmp/penstock-script && shift && exec "$@" /tmp/penstock-script'
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}\Z", re.A)
CODE: Final = "penstock-code"


@dataclass(frozen=True, slots=True)
class PodNumbers:
    """Where a pod reads its number, by the name that stands for it in its words."""

    fields: Mapping[str, str]
    indexed: bool
    """Kubernetes itself gives it JOB_COMPLETION_INDEX."""
    always: bool = False
    """It is told even if its words do not ask for it."""
    replicas: int = 1


class PodWriter:
    """`name`: of the document; names of documents beside it begin with it. `code`: the error code for what is too large."""

    def __init__(self, name: str, report: Report, problems: list[Problem], payload: str, code: str) -> None:
        self.name = name
        self.report = report
        self.problems = problems
        self.payload = payload
        self.code = code
        self.beside: dict[str, dict[str, Any]] = {}
        """Documents that the pods need, by name."""
        self.claims: dict[str, Step] = {}
        """Mounts that the run shares and that have no volume in the pod, each with a step that uses it."""

    def template(self, plain: PodKind, name: str, numbered: PodNumbers, claimed: bool) -> dict[str, Any]:
        """Metadata and spec. `claimed`: the document around the pod provides the shared volumes."""
        step = plain.step
        parts = self.parts(step, name)
        kept = part(step.extra, "pod")
        sidecars = [one for one in parts if one.sidecar]
        first, main = _in_order(parts, step, self.problems)
        spec: dict[str, Any] = {}
        if sidecars or first:
            before = [self.container(one, step, numbered) for one in (*sidecars, *first)]
            spec["initContainers"] = [
                {**one, "restartPolicy": "Always"} if number < len(sidecars) else one
                for number, one in enumerate(before)
            ]
        spec["containers"] = [self.container(one, step, numbered) for one in main]
        self.resources(spec, step)
        spec |= placement_fields(step.placement)
        volumes = self.volumes(step, claimed)
        if volumes:
            spec["volumes"] = volumes
        spec["restartPolicy"] = "Never"
        spec |= {field: thawed(value) for field, value in kept.items() if field != "volumes"}
        metadata = thawed(part(step.extra, "metadata"))
        return {**({"metadata": metadata} if metadata else {}), "spec": spec}

    # -- programs

    def parts(self, step: Step, name: str) -> list[Part]:
        """The programs of the step, each with a command."""
        action = step.action
        if isinstance(action, Pod):
            return [self.plain_part(one, step) for one in action.parts]
        name = str(part(step.extra, "container").get("name") or name)
        if isinstance(action, Container):
            made = Part(name=name, image=action.image, command=action.command, args=action.args, env=action.env)
            return [replace(made, workdir=action.workdir)]
        if isinstance(action, Function):
            action = self.function(action, step)
        assert isinstance(action, Script)
        made = Part(name=name, image=action.image, command=action.command, source=action.source, env=action.env)
        return [self.plain_part(replace(made, workdir=action.workdir), step)]

    def function(self, action: Function, step: Step) -> Script:
        given = [shim.FunctionInput(one.name, *_wire(one.value, str(one.type))) for one in step.inputs]
        retry_on = step.retry.exceptions if step.retry is not None else ()
        if action.image is None:
            said = f"the function runs in {shim.IMAGE}, for no image is named"
            self.report.changed(f"steps.{step.name}.function.image", said, source=step.source)
            action = replace(action, image=shim.IMAGE)
        shipped = shim.function_container(action, given, (), retry_on=retry_on)
        return Script(image=shipped.image, command=shipped.command, source=shipped.source, env=action.env)

    def plain_part(self, one: Part, step: Step) -> Part:
        """Without `source`: as words of the interpreter."""
        where = f"steps.{step.name}"
        for what, value in (("when", one.when), ("results", one.results), ("on_error", one.on_error != "stop")):
            if value:
                said = f"the part {one.name} of {step.name} has {what}; a pod of Kubernetes cannot say that"
                fix = "make a shell script of the parts, or write Tekton"
                self.problems.append(Problem("P857", said, fix, where=f"{where}.pod.{one.name}", source=step.source))
        if one.timeout is not None:
            said = f"the part {one.name} has no time limit of its own"
            self.report.lost(f"{where}.pod.{one.name}.timeout", said, "The whole step may have one.", step.source)
        if one.source is None:
            return one
        command = one.command or ("sh",)
        if len(one.source) > _LONGEST:
            said = f"the script of {step.name} has {len(one.source)} characters, more than a word of a command takes"
            self.problems.append(Problem(self.code, said, "put it into the image", where=where, source=step.source))
        program = command[0].rpartition("/")[2]
        options = all(word.startswith("-") for word in command[1:])
        flag = "-c" if program in _SHELLS or program.startswith("python") else _BY_WORD.get(program, "")
        if flag and options:
            return replace(one, command=(*command, flag, one.source), args=one.args, source=None)
        wrapped = ("sh", "-c", _WRAPPER, "sh", one.source, *command)
        return replace(one, command=wrapped, args=one.args, source=None)

    def container(self, one: Part, step: Step, numbered: PodNumbers) -> dict[str, Any]:
        several = isinstance(step.action, Pod)
        kept = part(step.extra, "containers", one.name) if several else part(step.extra, "container")
        env, known = environment(one, kept, numbered)
        found: dict[str, Any] = {"name": label(one.name, letter=False), "image": one.image}
        if one.command:
            found["command"] = [worded(word, one.env, lambda word: escape(word, known)) for word in one.command]
        if one.args:
            found["args"] = [worded(word, one.env, lambda word: escape(word, known)) for word in one.args]
        if one.workdir:
            found["workingDir"] = one.workdir
        if env:
            found["env"] = env
        mounts = [self.mount(mount) for mount in step.mounts]
        if isinstance(step.action, Function):
            mounts.append({"name": CODE, "mountPath": shim.CODE, "readOnly": True})
        if mounts:
            found["volumeMounts"] = mounts
        own = {field: thawed(value) for field, value in kept.items() if field not in ("name", "env", "resources")}
        for mount in own.pop("volumeMounts", ()):
            if isinstance(mount, dict) and mount.get("mountPath") not in {one["mountPath"] for one in mounts}:
                found.setdefault("volumeMounts", []).append(mount)
        return found | own

    # -- what it asks for

    def resources(self, spec: dict[str, Any], step: Step) -> None:
        """The resources as they were written, if they still add up; otherwise the first container requests everything."""
        several = isinstance(step.action, Pod)
        everyone = [*spec.get("initContainers", ()), *spec["containers"]]
        for one in everyone:
            kept = part(step.extra, "containers", one["name"]) if several else part(step.extra, "container")
            if kept.get("resources"):
                one["resources"] = thawed(kept["resources"])
        around = {field: thawed(part(step.extra, "pod").get(field)) for field in ("overhead", "resources")}
        said = requests.resources_of({**spec, **{field: value for field, value in around.items() if value}})
        if said == dict(step.resources):
            return
        for one in everyone:
            one.pop("resources", None)
        if not step.resources:
            return
        asked = {name: quantity.show(amount, name) for name, amount in sorted(step.resources.items())}
        devices = {name: amount for name, amount in asked.items() if "/" in name}
        first = spec["containers"][0]
        first["resources"] = {"requests": asked, **({"limits": devices} if devices else {})}

    # -- volumes

    def mount(self, mount: Mount) -> dict[str, Any]:
        found: dict[str, Any] = {"name": label(mount.name, letter=False), "mountPath": mount.path}
        if mount.sub_path:
            found["subPath"] = mount.sub_path
        if mount.read_only:
            found["readOnly"] = True
        return found

    def volumes(self, step: Step, claimed: bool) -> list[dict[str, Any]]:
        given = {
            str(one.get("name")): one for one in part(step.extra, "pod").get("volumes", ()) if isinstance(one, Mapping)
        }
        found: dict[str, dict[str, Any]] = {}
        for mount in step.mounts:
            name = label(mount.name, letter=False)
            if mount.name in given:
                found[name] = {**thawed(given[mount.name]), "name": name}
            elif mount.scope == "task":
                found[name] = {"name": name, "emptyDir": {}}
            elif mount.scope == "given":
                found[name] = {"name": name, **self.given_files(mount)}
            else:
                self.claims.setdefault(mount.name, step)
                if not claimed:
                    claim = label(f"{mount.name}-{self.name}")
                    found[name] = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        for name, volume in given.items():
            found.setdefault(label(name, letter=False), {**thawed(volume), "name": label(name, letter=False)})
        if isinstance(step.action, Function):
            found[CODE] = {"name": CODE, "projected": {"sources": self.code_maps()}}
        return list(found.values())

    def given_files(self, mount: Mount) -> dict[str, Any]:
        secrets = secret_volume(mount.files, lambda files: self.config_map(replace(mount, files=files)))
        return secrets or {"configMap": self.config_map(mount)}

    def config_map(self, mount: Mount) -> dict[str, Any]:
        """A ConfigMap with the files of a mount; names with folders in them are mapped to paths."""
        digest = hashlib.sha256(to_text(dict(mount.files)).encode("utf-8", "surrogatepass")).hexdigest()[:6]
        name = label(f"{self.name}-{mount.name}-{digest}")
        keys = {path: path if _KEY.match(path) else f"file-{number}" for number, path in enumerate(mount.files)}
        self.document("ConfigMap", name, {"data": {keys[path]: text for path, text in mount.files.items()}})
        if all(path == key for path, key in keys.items()):
            return {"name": name}
        return {"name": name, "items": [{"key": key, "path": path} for path, key in keys.items()]}

    def code_maps(self) -> list[dict[str, Any]]:
        """The author's code, in as many ConfigMaps as needed. Changed code gets other names, so a waiting run keeps its own code."""
        found = []
        digest = short_digest(self.payload)
        for number, at in enumerate(range(0, max(1, len(self.payload)), _CHUNK)):
            name = label(f"{self.name}-code-{digest}-{number}")
            self.document("ConfigMap", name, {"data": {f"{number:03}": self.payload[at : at + _CHUNK]}})
            found.append({"configMap": {"name": name}})
        return found

    def document(self, kind: str, name: str, fields: Mapping[str, Any]) -> None:
        self.beside[f"{kind}/{name}"] = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def _wire(value: Any, type_: str) -> tuple[str, str]:
    """How an input of a function is passed: the type by which its text is read, and the text as Python."""
    if value == INDEX:
        return "int", repr(INDEX)
    if type_ in ("str", "file", "dir") and isinstance(value, str):
        return type_, repr(value)
    return type_, repr(json.dumps(value, default=list))


def _in_order(parts: Sequence[Part], step: Step, problems: list[Problem]) -> tuple[list[Part], list[Part]]:
    """The parts that run one after another first, and the rest, which run together."""
    rest = [one for one in parts if not one.sidecar]
    needs = {
        one.name: set(one.needs) if one.needs is not None else {before.name} if before else set()
        for before, one in zip([None, *rest], rest, strict=False)
    }
    chain: list[Part] = []
    while rest:
        done = {one.name for one in chain}
        last = {chain[-1].name} if chain else set()
        ready = [one for one in rest if last <= needs[one.name] <= done]
        if len(ready) == len(rest):
            break
        if len(ready) != 1:
            said = f"the parts of {step.name} are no chain with a common end: see {rest[0].name}"
            fix = "let each part need the one before it, and only the last ones run together"
            where = f"steps.{step.name}.pod.{rest[0].name}"
            problems.append(Problem("P857", said, fix, where=where, source=step.source))
            break
        chain += ready
        rest.remove(ready[0])
    return chain, rest


# -- environment and words --------------------------------------------------------------------------------------------


def environment(one: Part, kept: Mapping[str, Any], numbered: PodNumbers) -> tuple[list[dict[str, Any]], set[str]]:
    """The entries, and the names for which `$(NAME)` in words would be replaced."""
    elsewhere = {str(entry.get("name")): entry for entry in kept.get("env", ()) if isinstance(entry, Mapping)}
    asked = words(one, elsewhere)
    has_index = INDEX_NAME in one.env
    entries: list[dict[str, Any]] = []
    ours = [name for name in numbered.fields if f"$({name})" in asked or (numbered.always and not has_index)]
    for name in ours:
        entries.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": numbered.fields[name]}}})
    if ours and numbered.replicas > 1:
        entries.append({"name": "PENSTOCK_REPLICAS", "value": str(numbered.replicas)})
    if ours and has_index and numbered.indexed and INDEX_NAME not in elsewhere:
        entries.append({"name": INDEX_NAME, "valueFrom": {"fieldRef": {"fieldPath": INDEX_FIELD}}})
    known = {str(entry["name"]) for entry in entries}
    for name, value in one.env.items():
        if name in elsewhere or (name == INDEX_NAME and numbered.indexed):
            continue
        entries += entries_of(name, value, lambda value: escape(value, known))
        known.add(name)
    for name, entry in elsewhere.items():
        entries.append(thawed(entry))
        known.add(name)
    return entries, known | {INDEX_NAME}


def words(one: Part | Container | Script, elsewhere: Iterable[str] = ()) -> str:
    """All text that a program receives, to search it for a number; without what Kubernetes fills in itself."""
    env = [value for name, value in one.env.items() if name != INDEX_NAME and name not in elsewhere]
    args = () if isinstance(one, Script) else one.args
    source = "" if isinstance(one, Container) else one.source
    return "\n".join(map(str, (*one.command, *args, *env, source)))


def asks_for(step: Step, mark: str) -> bool:
    """Does a program of this step use this number? All values of the step are known."""
    action = step.action
    if isinstance(action, Function):
        return any(given.value == mark for given in step.inputs) or mark in action.env.values()
    several = isinstance(action, Pod)
    for one in action.parts if isinstance(action, Pod) else (action,):
        assert isinstance(one, Part | Container | Script)
        name = one.name if isinstance(one, Part) else ""
        kept = part(step.extra, "containers", name) if several else part(step.extra, "container")
        if mark in words(one, {str(entry.get("name")) for entry in kept.get("env", ()) if isinstance(entry, Mapping)}):
            return True
    return False


def has_index(step: Step) -> bool:
    action = step.action
    if isinstance(action, Pod):
        return any(INDEX_NAME in one.env for one in action.parts)
    return isinstance(action, Container | Script | Function) and INDEX_NAME in action.env


def escape(text: str, known: Iterable[str]) -> str:
    """The text, escaped so that Kubernetes gives it back; only the pod's own number is filled in."""
    if "$" not in text:
        return text
    pieces = _MARKS.split(text)
    same = dict.fromkeys(known, "\0")
    marks = {mark[2:-1]: mark for mark in (INDEX, REPLICA)}
    as_is = "".join(pieces)
    if expand(as_is, {**same, **marks}) == text:
        return as_is
    return "".join(piece if number % 2 else piece.replace("$", "$$") for number, piece in enumerate(pieces))


# -- the rest of a Job ------------------------------------------------------------------------------------------------


def retry_fields(retry: Retry | None, step: Step, report: Report) -> dict[str, Any]:
    """backoffLimit, and the exit codes that are retried."""
    where = f"steps.{step.name}.retry"
    if retry is None:
        return {"backoffLimit": 0}
    found: dict[str, Any] = {"backoffLimit": min(retry.limit, 2**31 - 1)}
    codes = retry.exit_codes
    if retry.exceptions:
        codes = (*codes, shim.RETRY) if isinstance(step.action, Function) else codes
    if codes:
        rule = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": sorted(set(codes))}}
        found["podFailurePolicy"] = {"rules": [rule]}
    if "podFailurePolicy" in part(step.extra, "job"):
        return found
    if retry.when is not None:
        said = f"whether {step.name} is worth another try ({retry.when.text}) is not asked"
        report.lost(f"{where}.when", said, "Name exit codes instead.", step.source)
    if retry.backoff not in (JOB_BACKOFF, POD_BACKOFF, Backoff()):
        said = "a Job waits 10 s before it tries again, then twice as long each time, 6 minutes at most"
        report.lost(f"{where}.backoff", said, source=step.source)
    if not {"failed", "errored"} <= set(retry.on):
        said = f"a Job tries again after any failure, not only when {' or '.join(retry.on)}"
        report.lost(f"{where}.on", said, source=step.source)
    return found


def finished(template: dict[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """The pods of a Job end; and if their exit codes count, each failure is a new pod."""
    pod = template["spec"]
    if pod.get("restartPolicy") != "OnFailure" or "podFailurePolicy" in job:
        pod["restartPolicy"] = "Never"
    return template


def seconds(value: float, where: str, step: Step | None, report: Report) -> int:
    if value != ceil(value):
        source = step.source if step is not None else None
        report.changed(where, f"{value:g} s are rounded up: Kubernetes counts whole seconds", source=source)
    return max(1, ceil(value))


def metadata(workflow: Workflow, name: str) -> dict[str, Any]:
    """The metadata of the document: what was read with it, its queue and its labels."""
    kept = part(workflow.extra, "metadata")
    found: dict[str, Any] = {"name": name}
    if isinstance(kept.get("name"), str) and label(workflow.name) == name:
        found = {"name": kept["name"]}
    elif isinstance(kept.get("generateName"), str):
        found = {"generateName": kept["generateName"] if label(workflow.name) == name else f"{name}-"}
    if kept.get("namespace"):
        found["namespace"] = kept["namespace"]
    labels = dict(workflow.labels)
    if workflow.queue is not None:
        labels[QUEUE] = workflow.queue
    if isinstance(workflow.priority, str):
        labels[PRIORITY] = workflow.priority
    if labels:
        found["labels"] = labels
    annotations = thawed(part(kept, "annotations"))
    if workflow.doc:
        annotations[DESCRIPTION] = workflow.doc
    if annotations:
        found["annotations"] = annotations
    return found


def queues(workflow: Workflow, plains: Sequence[PodKind], target: str, report: Report) -> None:
    """One document is in one queue."""
    if workflow.priority is not None and not isinstance(workflow.priority, str):
        said = f"a priority is the name of a class for {target}, not {workflow.priority}"
        report.lost("priority", said, "Make a WorkloadPriorityClass and name it.", workflow.source)
    for plain in plains:
        step = plain.step
        if step.queue not in (None, workflow.queue):
            said = f"{step.name} belongs to the queue {step.queue}; {target} is in one queue, as a whole"
            report.lost(f"steps.{step.name}.queue", said, "Write Argo, or a workflow for each queue.", step.source)
        if step.priority not in (None, workflow.priority):
            said = f"{target} has one priority, as a whole"
            report.lost(f"steps.{step.name}.priority", said, source=step.source)


def foreign(workflow: Workflow, plains: Sequence[PodKind], known: Sequence[str], target: str, report: Report) -> None:
    """Reports fields of another format that this one cannot express."""
    common = ("metadata", "pod", "container", "containers", "job", *known)
    for key, value in workflow.extra.items():
        for field in _said_by(key, value, common):
            said = f"{target} has no field for what {key} calls {field}"
            report.lost(f"extra.{key}.{field}", said, source=workflow.source)
    for plain in plains:
        step = plain.step
        for key, value in step.extra.items():
            for field in _said_by(key, value, common):
                said = f"{target} has no field for what {key} calls {field}"
                report.lost(f"steps.{step.name}.extra.{key}.{field}", said, source=step.source)


def _said_by(key: str, value: object, common: Sequence[str]) -> list[str]:
    """The fields of one format; without the kind of the document."""
    return [field for field in value if field != "kind"] if key not in common and isinstance(value, Mapping) else []


def stop_if_wrong(problems: Sequence[Problem]) -> None:
    if problems:
        raise UserError(problems)
