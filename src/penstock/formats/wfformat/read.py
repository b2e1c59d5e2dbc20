"""WfFormat, the JSON of recorded workflow executions (wfcommons.org), -> a workflow and how long each of its steps took.

Called by the queue simulator, through formats.registry. One task of the recording is one step with its dependencies, cores and memory. What it
computed is not recorded: the step sleeps for as long as its task ran. Steps are never shared: sleeping equally long is not the same work.

Two layouts are in use. In 1.5 the graph (`specification`, by id) and the measurements (`execution`) are two lists; in 1.4 they are
one, and tasks refer to each other by name. Recordings omit fields and have wrong units: everything that is guessed, changed or dropped
is in `Trace.notes`. A malformed document is refused with every Problem found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, Final, Literal

from penstock.errors import DocumentError, Problem, Source
from penstock.formats.base import Trace, TraceNote
from penstock.graph.labels import cut
from penstock.graph.limits import MOST_PROBLEMS
from penstock.graph.model import Cache, Edge, Script, Step, Workflow
from penstock.graph.order import NotOrdered, topological
from penstock.graph.text import read_json

VERSIONS: Final = ("1.4", "1.5")
LONGEST: Final = 10**9
"""The most seconds that a task may take: thirty years."""
MOST_CORES: Final = 10**7
MOST_BYTES: Final = 2**50
_LONGEST_NAME: Final = 128
_NOISE: Final = 5.0
"""Tolerance in per cent of a core: a process measured at 101% has one core, not two."""
_KIBIBYTES: Final = 64 * 2**20
"""A machine with less memory than this for each core was recorded in KiB."""

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NUMBER_BEHIND: Final = re.compile(r"[_-](?:ID)?\d+\Z")
_NEVER_SHARED: Final = Cache(enabled=False)


def read_wfformat(text: str, file: str = "<text>", *, by_kind: bool = False, grouped: bool = False) -> Trace:
    """`by_kind`: all tasks of a kind request as much as the largest of them, like requests that are written once for a kind.
    `grouped`: tasks of a kind that wait for the same tasks form one stage, since they become ready together."""
    data, _ = read_json(text.removeprefix("\ufeff"), file)
    reader = _Reader(file)
    tasks = reader.tasks(data)
    reader.stop_if_bad()
    return _Maker(reader, data, tasks, by_kind, grouped).trace()


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Task:
    key: str
    """The name or id by which other tasks refer to it."""
    kind: str
    where: str
    parents: list[str]
    children: list[str]
    runtime: float | None
    cores: float | None
    """Requested cores."""
    busy: float | None
    """Measured use, in per cent of a core."""
    memory: float | None
    """In the unit of the document, which is not always the declared one."""
    name: str = ""


class _Reader:
    """Reads every field that is used and collects problems. A bad value counts as absent."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def report(self, message: str, fix: str, where: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem("P810", message, fix, where, Source(self.file, 1)))

    def stop_if_bad(self) -> None:
        if self.problems:
            raise DocumentError(self.problems)

    def tasks(self, data: Any) -> list[_Task]:
        if not isinstance(data, dict):
            self.report(f"the document is {_is(data)}, not a mapping", "give a WfFormat instance", "")
            return []
        version = data.get("schemaVersion")
        if version not in VERSIONS:
            said = f"schemaVersion is {version!r}" if isinstance(version, str | int | float) else "no schemaVersion"
            fix = "migrate it to 1.5 with wfcommons-migrate-instance.py of the repository wfcommons/WfFormat"
            fix = fix if str(version) in ("1.0", "1.1", "1.2", "1.3") else 'give a WfFormat instance of version "1.5"'
            self.report(f"{cut(said, 60)}; {' and '.join(VERSIONS)} can be read", fix, "schemaVersion")
            return []
        workflow = self.mapping(data, "workflow", "")
        tasks = self.in_two_lists(workflow) if version == "1.5" else self.in_one_list(workflow)
        if not tasks and not self.problems:
            self.report("there are no tasks", "give a recording that has some", "workflow")
        if tasks and not self.problems and all(task.runtime is None for task in tasks):
            self.report(
                "no task has a run time: this describes a workflow and records no execution of it",
                "give an instance with `workflow.execution`, or with `runtimeInSeconds` in its tasks",
                "workflow.execution" if version == "1.5" else "workflow.tasks",
            )
        return tasks

    def in_two_lists(self, workflow: dict[str, Any]) -> list[_Task]:
        measured: dict[str, tuple[dict[str, Any], str]] = {}
        execution = self.mapping(workflow, "execution", "workflow.") if "execution" in workflow else {}
        place = "workflow.execution.tasks"
        for i, record in enumerate(self.sequence(execution, "tasks", "workflow.execution.") if execution else ()):
            key = self.word(record, "id", place, i)
            if key in measured:
                self.report(f"two records have the id {cut(key, 80)!r}", "remove one", f"{place}[{i}].id")
            elif key:
                measured[key] = (record, f"{place}[{i}]")
        place = "workflow.specification.tasks"
        specification = self.mapping(workflow, "specification", "workflow.")
        found = []
        for i, task in enumerate(self.sequence(specification, "tasks", "workflow.specification.")):
            key = self.word(task, "id", place, i)
            if key:
                record, where = measured.get(key, ({}, ""))
                found.append(self.task(key, task, record, f"{place}[{i}]", where, "coreCount"))
        return self.unique(found, "id")

    def in_one_list(self, workflow: dict[str, Any]) -> list[_Task]:
        place = "workflow.tasks"
        found = []
        ids: dict[str, str] = {}
        for i, task in enumerate(self.sequence(workflow, "tasks", "workflow.")):
            key = self.word(task, "name", place, i)
            if key:
                where = f"{place}[{i}]"
                found.append(self.task(key, task, task, where, where, "cores"))
                if isinstance(task.get("id"), str):
                    ids[task["id"]] = key
        # Parents should be names, but some recordings have ids.
        names = {task.key for task in found}
        for task in found:
            task.parents = [up if up in names else ids.get(up, up) for up in task.parents]
            task.children = [down if down in names else ids.get(down, down) for down in task.children]
        return self.unique(found, "name")

    def unique(self, tasks: list[_Task], field: str) -> list[_Task]:
        seen: set[str] = set()
        for task in tasks:
            if task.key in seen:
                self.report(f"two tasks have the {field} {cut(task.key, 80)!r}", "rename one", f"{task.where}.{field}")
            seen.add(task.key)
        for task in tasks:
            for field, others in (("parents", task.parents), ("children", task.children)):
                for other in others:
                    if other not in seen:
                        self.report(
                            f"{cut(task.key, 80)!r} names {cut(other, 80)!r}, and no task is called that",
                            "add the task, or take it out of the list",
                            f"{task.where}.{field}",
                        )
        return tasks

    def task(
        self, key: str, task: dict[str, Any], record: dict[str, Any], where: str, measured: str, cores: str
    ) -> _Task:
        kind = task.get("category", task.get("name", key))
        return _Task(
            key=key,
            kind=_NUMBER_BEHIND.sub("", kind) if isinstance(kind, str) else key,
            where=where,
            parents=self.words(task, "parents", where),
            children=self.words(task, "children", where),
            runtime=self.number(record, "runtimeInSeconds", measured, LONGEST),
            cores=self.number(record, cores, measured, MOST_CORES),
            busy=self.number(record, "avgCPU", measured, MOST_CORES),
            memory=self.number(record, "memoryInBytes", measured, MOST_BYTES),
        )

    # -- fields --

    def mapping(self, data: dict[str, Any], key: str, around: str) -> dict[str, Any]:
        return self.part(data, key, around, dict) or {}

    def sequence(self, data: dict[str, Any], key: str, around: str) -> list[Any]:
        return self.part(data, key, around, list) or []

    def part(self, data: dict[str, Any], key: str, around: str, wanted: type) -> Any:
        found = data.get(key)
        if isinstance(found, wanted):
            return found
        noun = "a mapping" if wanted is dict else "a list"
        if key in data:
            self.report(f"{key!r} is {_is(found)}, not {noun}", f"give {noun}", around + key)
        elif data or not around:
            self.report(f"{key!r} is missing", "give a WfFormat instance: see wfcommons.org/format", around + key)
        return None

    def word(self, data: Any, key: str, place: str, i: int) -> str:
        """The name of a list's item, or nothing."""
        if not isinstance(data, dict):
            self.report(f"a task is {_is(data)}, not a mapping", "give a mapping", f"{place}[{i}]")
            return ""
        found = data.get(key)
        if isinstance(found, str) and found:
            return found
        self.report(
            f"a task has no {key!r}" if found is None else f"{key!r} is {_is(found)}, not text",
            "give each task a name of its own, as text",
            f"{place}[{i}].{key}",
        )
        return ""

    def words(self, data: dict[str, Any], key: str, where: str) -> list[str]:
        found = data.get(key)
        if found is None:
            return []
        if isinstance(found, list) and all(type(item) is str for item in found):
            return found
        wrong = next((item for item in found if type(item) is not str), found) if isinstance(found, list) else found
        self.report(f"{key!r} has {_is(wrong)} in it", "give a list of the names of tasks", f"{where}.{key}")
        return []

    def number(self, data: dict[str, Any], key: str, where: str, most: int) -> float | None:
        """A number from 0 to `most`; None if absent."""
        found = data.get(key)
        if found is None:
            return None
        if type(found) not in (int, float):
            self.report(f"{key!r} is {_is(found)}, not a number", "give a number", f"{where}.{key}")
        elif type(found) is float and not isfinite(found):
            self.report(f"{key!r} is too large to be a number", "give what was measured", f"{where}.{key}")
        elif not 0 <= found <= most:
            self.report(
                f"{key!r} is {found:.6g}" if abs(found) < 10**300 else f"{key!r} is out of all bounds",
                f"give a number from 0 to {most:,}, or leave it out",
                f"{where}.{key}",
            )
        else:
            return float(found)
        return None


def _is(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


# -- making the workflow ----------------------------------------------------------------------------------------------


class _Maker:
    """Valid data -> Trace; notes everything that is guessed."""

    def __init__(self, reader: _Reader, data: dict[str, Any], tasks: list[_Task], by_kind: bool, grouped: bool) -> None:
        self.reader = reader
        self.data = data
        self.all = tasks
        self.by_kind = by_kind
        self.grouped = grouped
        self.notes: list[TraceNote] = []
        self.older = data["schemaVersion"] == "1.4"
        self.place = "workflow" if self.older else "workflow.execution"
        self.recorded: dict[str, Any] = data["workflow"] if self.older else data["workflow"].get("execution", {})

    def note(self, kind: Literal["guessed", "changed", "dropped"], text: str, count: int) -> None:
        if count:
            self.notes.append(TraceNote(kind, text, count))

    def trace(self) -> Trace:
        machines, unit = self.machines()
        makespan = self.reader.number(self.recorded, "makespanInSeconds", self.place, LONGEST)
        needs = self.needs()
        self.reader.stop_if_bad()
        self.name_tasks()
        resources = self.resources(unit)
        unmeasured = sum(task.runtime is None for task in self.all)
        self.note("guessed", "tasks without a run time take no time", unmeasured)
        self.dropped()
        workflow = self.workflow(needs, resources)
        runtimes = {task.name: task.runtime or 0.0 for task in self.all}
        return Trace(workflow, runtimes, tuple(self.notes), makespan, machines)

    def needs(self) -> dict[str, list[str]]:
        """Task -> the tasks it waits for: its own parents, and tasks that name it as a child."""
        ups = {task.key: dict.fromkeys(task.parents) for task in self.all}
        one_sided = 0
        for task in self.all:
            for child in task.children:
                if task.key not in ups[child]:
                    ups[child][task.key] = None
                    one_sided += 1
        self.note("guessed", "dependencies said by the parent only (`children`) are kept", one_sided)
        try:
            topological(ups)
        except NotOrdered as cycle:
            named = [cut(name, 60) for name in [*cycle.names, cycle.names[0]]]
            shown = named if len(named) <= 8 else [*named[:4], "…", *named[-2:]]
            where = next(task.where for task in self.all if task.key == cycle.names[0])
            self.reader.report(
                f"tasks wait for each other in a circle: {' → '.join(shown)}",
                "take one of these out of the `parents` or `children` of another",
                f"{where}.parents",
            )
        return {key: list(found) for key, found in ups.items()}

    def machines(self) -> tuple[dict[str, int], int]:
        """The resources of all machines together, and the factor for the memory values of this document."""
        found = self.recorded.get("machines") or ()
        machines = [machine for machine in found if isinstance(machine, dict)] if isinstance(found, list) else []
        cores: list[float | None] = []
        memory: list[float | None] = []
        for i, machine in enumerate(machines):
            place = f"{self.place}.machines[{i}]"
            cpu = machine.get("cpu")
            field = "coreCount" if isinstance(cpu, dict) and "coreCount" in cpu else "count"
            cores.append(self.reader.number(cpu, field, f"{place}.cpu", MOST_CORES) if isinstance(cpu, dict) else None)
            memory.append(self.reader.number(machine, "memoryInBytes", place, MOST_BYTES))
        small = sum(1 for has, held in zip(cores, memory, strict=True) if has and held and held / has < _KIBIBYTES)
        unit = 1024 if small and small == len(machines) else 1
        if unit > 1:
            said = "machines have too little memory for bytes: all memory of this document is read as KiB"
            self.note("guessed", said, small)
        total = {}
        for resource, amounts, scale in (("cpu", cores, 1000), ("memory", memory, 1000 * unit)):
            known = [amount for amount in amounts if amount]
            if known and len(known) == len(machines):
                total[resource] = round(sum(known) * scale)
        return total, unit

    def name_tasks(self) -> None:
        names = _Names()
        for task in self.all:
            task.name = names.give(task.key)
        changed = sum(task.name != task.key for task in self.all)
        self.note("changed", "names that a step cannot have are spelled with - instead", changed)

    def resources(self, unit: int) -> dict[str, dict[str, int]]:
        """Task -> resources. Cores as requested; without a request, as many as were busy."""
        found: dict[str, dict[str, int]] = {}
        measured = unknown = forgotten = 0
        for task in self.all:
            if task.cores:
                cpu = ceil(task.cores * 1000)
            else:
                cpu = 1000 * max(1, ceil(((task.busy or 0.0) - _NOISE) / 100))
                measured += task.busy is not None
                unknown += task.busy is None
            found[task.key] = {"cpu": cpu}
            if task.memory:
                found[task.key]["memory"] = ceil(task.memory) * unit * 1000
            else:
                forgotten += 1
        self.note("guessed", "cores from the measured avgCPU: whole ones, at least one", measured)
        self.note("guessed", "tasks without cores or avgCPU get one core", unknown)
        self.note("guessed", "tasks without a measured memory, or 0, ask for none", forgotten)
        return self.largest(found) if self.by_kind else found

    def largest(self, resources: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        most: dict[str, dict[str, int]] = {}
        for task in self.all:
            of_kind = most.setdefault(task.kind, {})
            for resource, amount in resources[task.key].items():
                of_kind[resource] = max(amount, of_kind.get(resource, 0))
        raised = sum(resources[task.key] != most[task.kind] for task in self.all)
        self.note("changed", "tasks ask for as much as the largest of their kind", raised)
        return {task.key: most[task.kind] for task in self.all}

    def dropped(self) -> None:
        records: list[Any] = self.recorded.get("tasks") or []
        if self.older:
            files = sum(bool(task.get("files")) for task in records)
            self.note("dropped", "files that tasks read and write", files)
        else:
            known = {task.key for task in self.all}
            strangers = sum(record["id"] not in known for record in records)
            self.note("dropped", "measurements of tasks that the specification does not have", strangers)
            files = self.data["workflow"]["specification"].get("files")
            self.note("dropped", "files and their sizes", len(files) if isinstance(files, list) else 0)
        for text, fields in (
            ("command lines: steps sleep instead", ("command",)),
            ("priorities", ("priority",)),
            (
                "bytes read and written, energy and power",
                ("readBytes", "writtenBytes", "energy", "avgPower", "energyInKWh", "avgPowerInW"),
            ),
            ("on which machine a task ran, and when", ("machine", "machines", "executedAt")),
        ):
            self.note("dropped", text, sum(any(field in record for field in fields) for record in records))

    def workflow(self, needs: Mapping[str, list[str]], resources: Mapping[str, dict[str, int]]) -> Workflow:
        name_of = {task.key: task.name for task in self.all}
        groups = self.groups(needs) if self.grouped else {}
        steps = [
            Step(
                name=task.name,
                action=Script(source=f"sleep {_seconds(task.runtime or 0.0)}"),
                needs=tuple(Edge(name_of[up]) for up in needs[task.key]),
                resources=resources[task.key],
                group=groups.get(task.key),
                cache=_NEVER_SHARED,
            )
            for task in self.all
        ]
        title = self.data.get("name")
        title = title.removesuffix(".json") if isinstance(title, str) else ""
        doc = self.data.get("description")
        return Workflow(
            name=_Names("trace").give(title), steps=tuple(steps), doc=cut(doc, 300) if isinstance(doc, str) else ""
        )

    def groups(self, needs: Mapping[str, list[str]]) -> dict[str, str]:
        """Task -> its group, if it is in one."""
        together: dict[tuple[str, frozenset[str]], list[str]] = {}
        for task in self.all:
            together.setdefault((task.kind, frozenset(needs[task.key])), []).append(task.key)
        names = _Names()
        found: dict[str, str] = {}
        for (kind, _), members in together.items():
            if len(members) > 1:
                found |= dict.fromkeys(members, names.give(kind))
        self.note("guessed", "tasks of one kind that wait for the same form one stage", len(found))
        return found


def _seconds(runtime: float) -> str:
    """For the `sleep` of a shell: without exponent."""
    return f"{runtime:.6f}".rstrip("0").rstrip(".")


class _Names:
    """Foreign text -> valid step names, each unique."""

    def __init__(self, nameless: str = "task") -> None:
        self.nameless = nameless
        self.given: set[str] = set()
        self.next: dict[str, int] = {}

    def give(self, wanted: str) -> str:
        base = _ILLEGAL.sub("-", wanted[: 4 * _LONGEST_NAME]).strip("-_")[:_LONGEST_NAME].rstrip("-_") or self.nameless
        name = base
        while name in self.given:
            # Counting continues where it stopped: a thousand equal names need no million attempts.
            number = self.next[base] = self.next.get(base, 1) + 1
            behind = f"-{number}"
            name = base[: _LONGEST_NAME - len(behind)].rstrip("-_") + behind
        self.given.add(name)
        return name
