"""The stages of an Argo workflow: as it is written, and of a node that runs. Called by the gates and by whoever follows a run.

A static stage is what is admitted together: group i of a steps template with its leaf calls (`T[i]`), a dag task that is a leaf
(`T.t`), or the entrypoint itself if that is a leaf (`<root>`). Exit handlers and hooks (`T@exit`, `T@hook`) are stages too, and
exempt: they free what is held, and must never wait for it. T carries its scope: `main`, `wftmpl:lib/main`, `inline:main[0].a`.

A run stage is one instance of it. Its name is found from the name of the node alone, without asking the cluster.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.errors import Source
from penstock.formats.argo_scope import (
    Resolved,
    Root,
    Unresolved,
    calls_of,
    exits_of,
    is_composite,
    is_pod,
    root_of,
)  # fmt: skip
from penstock.formats.argo_shape import Shape, loops, shape_of, size_of, split_tags
from penstock.formats.documents import Document, Library

ROOT = "<root>"
Kind = Literal["root", "group", "task", "exit", "hook"]


@dataclass(frozen=True, slots=True)
class LeafCall:
    """A step, a task or a hook that runs in a pod."""

    name: str
    """Of the step or task; of the template where it is the entrypoint or a hook."""
    resolved: Resolved
    size: int | None
    """How many times it runs; None where only the run knows."""
    when: str
    shape: Shape
    path: str
    call: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def template(self) -> str:
        return self.resolved.qualified

    @property
    def by_item(self) -> bool:
        """Each item decides for itself whether it runs: the size is the most there can be."""
        return bool(self.when) and loops(self.call) and mentions_item(self.when)


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    kind: Kind
    template: str
    """The steps or dag template around it, with its scope; nothing for the entrypoint, exit handlers and hooks."""
    calls: tuple[LeafCall, ...]
    path: str
    document: Document = field(repr=False)
    mixed: bool = False
    """Beside its leaves the group calls steps or dag templates, which have stages of their own."""
    recursive: bool = False
    """Its template calls itself: there is no end to how often it may run."""
    exempt: bool = False

    @property
    def size(self) -> int | None:
        """Calls of all its members; None if that of one is not known."""
        total = 0
        for call in self.calls:
            if call.size is None:
                return None
            total += call.size
        return total

    @property
    def source(self) -> Source:
        return self.document.source(self.path)


@dataclass(frozen=True, slots=True)
class Lost:
    """A call that cannot be followed: what lies below it is not known before the run."""

    name: str
    path: str
    document: Document = field(repr=False)
    unresolved: Unresolved
    exempt: bool = False


@dataclass(frozen=True, slots=True)
class Stages:
    stages: tuple[Stage, ...]
    unresolved: tuple[Lost, ...] = ()
    recursive: frozenset[str] = frozenset()
    """Templates that call themselves, directly or not."""
    main: Mapping[str, Resolved] = field(default_factory=dict)
    """Every template that the workflow reaches outside of exit handlers and hooks."""
    exempt: Mapping[str, Resolved] = field(default_factory=dict)
    """Every template that exit handlers and hooks reach; it may be in both."""

    def queued(self) -> list[Stage]:
        return [stage for stage in self.stages if not stage.exempt]


_ITEM = re.compile(r"\bitem\b")


def mentions_item(text: Any) -> bool:
    """A tag in the text speaks of the item of a loop."""
    return isinstance(text, str) and any(tag and _ITEM.search(piece) for piece, tag in split_tags(text))


def stages_of(library: Library, document: Document, everything: bool = False) -> Stages:
    """The static stages of a Workflow, WorkflowTemplate, ClusterWorkflowTemplate or CronWorkflow.

    A document without an entrypoint has the stages of all its steps and dag templates; with `everything`, any document has."""
    return _Derivation(root_of(library, document)).derive(everything)


class _Derivation:
    """Walks the templates, each once, from a list of those still to be seen: recursion in the document is none in here."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.stages: list[Stage] = []
        self.lost: list[Lost] = []
        self.seen: tuple[dict[str, Resolved], dict[str, Resolved]] = ({}, {})
        """Not exempt, and exempt."""
        self.edges: dict[str, set[str]] = {}
        self.hooks: deque[tuple[str, str, Resolved | Unresolved, Document]] = deque()
        self.handlers: set[str] = set()
        """Names of stages of exit handlers and hooks."""

    def derive(self, everything: bool) -> Stages:
        entry = self.root.entry()
        if isinstance(entry, Resolved):
            if is_pod(entry.template):
                call = LeafCall(
                    str(entry.template.get("name") or ""), entry, 1, "", shape_of(self.root, entry), entry.path
                )
                self.stages.append(Stage(ROOT, "root", "", (call,), entry.path, entry.document))
            self._walk([entry], exempt=False)
        elif isinstance(entry, Unresolved):
            self._miss(self.root.entrypoint, f"{self.root.path}.entrypoint", self.root.document, entry, False)
        elif self.root.unresolved is not None:
            path = f"{self.root.path}.workflowTemplateRef"
            self._miss("workflowTemplateRef", path, self.root.document, self.root.unresolved, False)
        self.hooks += [(name, path, found, self.root.document) for name, path, found in self.root.exits()]
        if everything or entry is None:
            self._libraries()
        self._exits()
        return self._result()

    def _libraries(self) -> None:
        """Every template that may be called from elsewhere: all but those that, as far as this document shows, only exit handlers and
        hooks reach."""
        others = [
            found for name in self.root.scope.templates if isinstance(found := self.root.scope.find(name), Resolved)
        ]
        waiting = [found for _, _, found, _ in self.hooks if isinstance(found, Resolved)]
        for one in others:
            for number, call, path in calls_of(one.template, one.path):
                handlers = exits_of(call, one.scope, path, one.at(number, call))
                waiting += [found for _, _, found in handlers if isinstance(found, Resolved)]
        hooked: set[str] = set()
        while waiting:
            one = waiting.pop()
            if one.qualified not in hooked:
                hooked.add(one.qualified)
                for number, call, path in calls_of(one.template, one.path):
                    found = one.resolve(call, one.at(number, call), path)
                    waiting += [found] if isinstance(found, Resolved) else []
        self._walk([one for one in others if one.qualified not in hooked], exempt=False)

    def _exits(self) -> None:
        """Until no exit handler or hook has one of its own that is new."""
        while self.hooks:
            name, path, found, document = self.hooks.popleft()
            if isinstance(found, Unresolved):
                self._miss(name, path, document, found, True)
                continue
            kind: Kind = "exit" if name == "exit" else "hook"
            if is_pod(found.template):
                self._hooked(found, kind, path, document)
            self._walk([found], exempt=True)

    def _hooked(self, found: Resolved, kind: Kind, path: str, document: Document) -> None:
        name = f"{found.qualified}@{kind}"
        if name not in self.handlers:
            self.handlers.add(name)
            call = LeafCall(str(found.template.get("name") or ""), found, 1, "", shape_of(self.root, found), path)
            self.stages.append(Stage(name, kind, "", (call,), path, document, exempt=True))

    def _walk(self, first: list[Resolved], exempt: bool) -> None:
        seen = self.seen[exempt]
        waiting = deque(first)
        while waiting:
            here = waiting.popleft()
            if here.qualified in seen:
                continue
            seen[here.qualified] = here
            self.edges.setdefault(here.qualified, set())
            if is_composite(here.template):
                waiting += self._visit(here, exempt)

    def _visit(self, here: Resolved, exempt: bool) -> list[Resolved]:
        """Emits the stages of one steps or dag template, and gives back what it calls."""
        called = []
        groups: dict[int | None, list[LeafCall]] = {}
        mixed: set[int | None] = set()
        known = here.qualified in self.seen[not exempt]
        """The other walk has told of its stages and of its hooks."""
        for number, call, path in calls_of(here.template, here.path):
            named = here.at(number, call)
            if not known:
                self.hooks += [
                    (name, where, found, here.document)
                    for name, where, found in exits_of(call, here.scope, path, named)
                ]
            found = here.resolve(call, named, path)
            if isinstance(found, Unresolved):
                self._miss(named, path, here.document, found, exempt)
                continue
            called.append(found)
            self.edges[here.qualified].add(found.qualified)
            if is_pod(found.template):
                leaf = self._leaf(found, call, path)
                if number is None:
                    stage = Stage(named, "task", here.qualified, (leaf,), path, here.document, exempt=exempt)
                    self.stages += [] if known else [stage]
                else:
                    groups.setdefault(number, []).append(leaf)
            elif is_composite(found.template):
                mixed.add(number)
        if not known:
            self.stages += self._groups(here, groups, mixed, exempt)
        return called

    def _groups(
        self, here: Resolved, groups: Mapping[int | None, list[LeafCall]], mixed: set[int | None], exempt: bool
    ) -> Iterator[Stage]:
        for number, leaves in groups.items():
            name, path = f"{here.qualified}[{number}]", f"{here.path}.steps[{number}]"
            yield Stage(
                name, "group", here.qualified, tuple(leaves), path, here.document, number in mixed, exempt=exempt
            )

    def _leaf(self, found: Resolved, call: Mapping[str, Any], path: str) -> LeafCall:
        when = call.get("when")
        return LeafCall(
            str(call.get("name") or ""), found, size_of(call), when if isinstance(when, str) else "",
            shape_of(self.root, found, call), path, call,
        )  # fmt: skip

    def _miss(self, name: str, path: str, document: Document, found: Unresolved, exempt: bool) -> None:
        self.lost.append(Lost(name, path, document, found, exempt))

    def _result(self) -> Stages:
        cyclic = _cyclic(self.edges)
        stages = [replace(one, recursive=True) if one.template in cyclic else one for one in self.stages]
        return Stages(tuple(stages), tuple(self.lost), cyclic, self.seen[0], self.seen[1])


def _cyclic(edges: Mapping[str, set[str]]) -> frozenset[str]:
    """Those that can be reached from themselves: the members of the knots that Tarjan's walk finds, here without recursion."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    open_ones: list[str] = []
    on_path: set[str] = set()
    found: set[str] = set()
    for start in edges:
        path = [(start, iter(sorted(edges[start])))] if start not in number else []
        while path:
            here, rest = path[-1]
            if here not in number:
                number[here] = low[here] = len(number)
                open_ones.append(here)
                on_path.add(here)
            for one in rest:
                if one not in number:
                    path.append((one, iter(sorted(edges.get(one, ())))))
                    break
                if one in on_path:
                    low[here] = min(low[here], number[one])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[here])
                if low[here] == number[here]:
                    knot = [open_ones.pop()]
                    while knot[-1] != here:
                        knot.append(open_ones.pop())
                    on_path.difference_update(knot)
                    if len(knot) > 1 or here in edges.get(here, ()):
                        found.update(knot)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class RStage:
    """One instance of a stage in a run. `name` is that of a node: the group, the task, or the workflow itself."""

    name: str
    exempt: bool = False


_RETRY = re.compile(r"\(\d+\)\Z")
_LOOP = re.compile(r"\(\d+:[^()]*\)\Z")
_INSTANCES = re.compile(r"\(\d+(?::[^()]*)?\)")
_IN_GROUP = re.compile(r"(.*\[\d+\])\.[^.\[\]()]+\Z", re.S)
_HANDLER = re.compile(r"(?:\.onExit|\.hooks\.[^.\[\]()]+)\Z")
_BELOW_HANDLER = re.compile(r"\.onExit[.\[]|\.hooks\.[^.\[\]]+[.\[]")


def stage_of(node_name: str, workflow_name: str) -> RStage:
    """The run stage of a pod, from its annotation `workflows.argoproj.io/node-name`.

    Argo takes all parentheses out of what describes an item, so those that are left are its own. The names alone do not tell a
    dag task called `hooks` or `onExit` from a hook or an exit handler: it counts as one of those, and does not queue."""
    call = _LOOP.sub("", _RETRY.sub("", node_name))
    if call == workflow_name:
        return RStage(call)
    below = call.removeprefix(workflow_name)
    if _HANDLER.search(below):
        return RStage(call, True)
    group = _IN_GROUP.match(call)
    return RStage(group[1] if group else call, bool(_BELOW_HANDLER.search(_INSTANCES.sub("", below))))
