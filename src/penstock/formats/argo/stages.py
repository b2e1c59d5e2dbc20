"""The static stages of an Argo document, and the run stage of a node. Called by the gate and by demand.

A **static stage** is a place in the document where a gate goes: group i of a steps template with its leaf calls (`T[i]`), a dag
task that is a leaf (`T.t`), or the entrypoint itself if that is a leaf (`<root>`). T carries its scope: `main`,
`wftmpl:lib/main`, `inline:main[0].a`. Every task of a dag has one, whatever its `target` is: the target may be a parameter.
Exit handlers and hooks (`T@exit`, `T@hook`) are exempt: they free what is held, so they must never wait for it.

A **run stage** is one instance of a static stage in one call of T. It is what is admitted, and what `penstock plan` counts
(plan.stages): a template that is called three times gives three run stages of each of its static stages. The name of a node
is enough to find its run stage.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.errors import Source
from penstock.formats.argo.known import entry_call, split_tags, values_inside, workflow_values
from penstock.formats.argo.pods import PodShape, loops, shape_of, size_of
from penstock.formats.argo.scope import (
    Resolved,
    Unresolved,
    WorkflowRoot,
    calls_of,
    exits_of,
    is_composite,
    is_pod,
    root_of,
)
from penstock.formats.documents import Document, Library

ROOT = "<root>"
Kind = Literal["root", "group", "task", "exit", "hook"]


@dataclass(frozen=True, slots=True)
class LeafCall:
    """A step, a task or a hook that runs in a pod."""

    name: str
    """Name of the step or task; of the template if it is the entrypoint or a hook."""
    resolved: Resolved
    size: int | None
    """How many times it runs; None if only the run knows."""
    when: str
    shape: PodShape
    path: str
    call: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def template(self) -> str:
        return self.resolved.qualified

    @property
    def by_item(self) -> bool:
        """Its condition reads the item: the size is an upper bound."""
        return bool(self.when) and loops(self.call) and mentions_item(self.when)


@dataclass(frozen=True, slots=True)
class StaticStage:
    """A place in a document where a gate goes."""

    name: str
    kind: Kind
    template: str
    """The qualified steps or dag template around it; empty for the entrypoint, exit handlers and hooks."""
    calls: tuple[LeafCall, ...]
    path: str
    document: Document = field(repr=False)
    mixed: bool = False
    """The group also calls steps or dag templates, which have stages of their own."""
    recursive: bool = False
    """Its template calls itself, so the number of its run stages has no bound."""
    exempt: bool = False

    @property
    def size(self) -> int | None:
        """The sum over its members; None if one is not known."""
        total = 0
        for call in self.calls:
            if call.size is None:
                return None
            total += call.size
        return total

    @property
    def asks(self) -> bool:
        """Does it need quota? A pod without requests needs none."""
        return any(call.shape.asks for call in self.calls)

    @property
    def source(self) -> Source:
        return self.document.source(self.path)


@dataclass(frozen=True, slots=True)
class UnresolvedCall:
    """A call whose template cannot be found: the stages below it are not known before the run."""

    name: str
    path: str
    document: Document = field(repr=False)
    unresolved: Unresolved
    exempt: bool = False


@dataclass(frozen=True, slots=True)
class StaticStages:
    """All static stages of a document."""

    stages: tuple[StaticStage, ...]
    unresolved: tuple[UnresolvedCall, ...] = ()
    recursive: frozenset[str] = frozenset()
    """Templates that call themselves, directly or not."""
    main: Mapping[str, Resolved] = field(default_factory=dict)
    """Every template that the workflow reaches outside of exit handlers and hooks."""
    exempt: Mapping[str, Resolved] = field(default_factory=dict)
    """Every template that exit handlers and hooks reach; it may be in both."""

    def queued(self) -> list[StaticStage]:
        return [stage for stage in self.stages if not stage.exempt]

    @property
    def asks(self) -> bool:
        """Does anything that may wait need quota, as far as can be told before the run?"""
        return any(stage.asks for stage in self.queued()) or any(not lost.exempt for lost in self.unresolved)


_ITEM = re.compile(r"\bitem\b")


def mentions_item(text: Any) -> bool:
    """Does a tag in the text read the item of a loop?"""
    return isinstance(text, str) and any(tag and _ITEM.search(piece) for piece, tag in split_tags(text))


def static_stages(library: Library, document: Document, everything: bool = False) -> StaticStages:
    """The static stages of a Workflow, WorkflowTemplate, ClusterWorkflowTemplate or CronWorkflow.

    Without an entrypoint, or with `everything`: the stages of all its steps and dag templates."""
    return _Derivation(root_of(library, document)).derive(everything)


class _Derivation:
    """Visits each template once, from a work list: recursive templates need no recursion here."""

    def __init__(self, root: WorkflowRoot) -> None:
        self.root = root
        self.values = workflow_values(root)
        self.stages: list[StaticStage] = []
        self.lost: list[UnresolvedCall] = []
        self.seen: tuple[dict[str, Resolved], dict[str, Resolved]] = ({}, {})
        """Not exempt, and exempt."""
        self.edges: dict[str, set[str]] = {}
        self.hooks: deque[tuple[str, str, Resolved | Unresolved, Document]] = deque()
        self.handlers: set[str] = set()
        """Names of stages of exit handlers and hooks."""

    def derive(self, everything: bool) -> StaticStages:
        entry = self.root.entry()
        if isinstance(entry, Resolved):
            if is_pod(entry.template):
                call = self._leaf(entry, {"name": entry.template.get("name"), **entry_call(self.root)}, entry.path)
                self.stages.append(StaticStage(ROOT, "root", "", (call,), entry.path, entry.document))
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
        """Every template that may be called from elsewhere: all but those that only exit handlers and hooks of this document reach."""
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
        """Follows exit handlers and hooks, and those of their calls, until there are no new ones."""
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
            call = self._leaf(found, {"name": found.template.get("name")}, path)
            self.stages.append(StaticStage(name, kind, "", (call,), path, document, exempt=True))

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
        """Adds the stages of one steps or dag template, and returns the templates that it calls."""
        called = []
        groups: dict[int | None, list[LeafCall]] = {}
        mixed: set[int | None] = set()
        known = here.qualified in self.seen[not exempt]
        """The other walk has added its stages and hooks."""
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
                    stage = StaticStage(named, "task", here.qualified, (leaf,), path, here.document, exempt=exempt)
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
    ) -> Iterator[StaticStage]:
        for number, leaves in groups.items():
            name, path = f"{here.qualified}[{number}]", f"{here.path}.steps[{number}]"
            yield StaticStage(
                name, "group", here.qualified, tuple(leaves), path, here.document, number in mixed, exempt=exempt
            )

    def _leaf(self, found: Resolved, call: Mapping[str, Any], path: str) -> LeafCall:
        when = call.get("when")
        return LeafCall(
            name=str(call.get("name") or ""),
            resolved=found,
            size=size_of(call),
            when=when if isinstance(when, str) else "",
            shape=shape_of(self.root, found, values_inside(found, call, self.values)),
            path=path,
            call=call,
        )

    def _miss(self, name: str, path: str, document: Document, found: Unresolved, exempt: bool) -> None:
        self.lost.append(UnresolvedCall(name, path, document, found, exempt))

    def _result(self) -> StaticStages:
        cyclic = _cyclic(self.edges)
        stages = [replace(one, recursive=True) if one.template in cyclic else one for one in self.stages]
        return StaticStages(tuple(stages), tuple(self.lost), cyclic, self.seen[0], self.seen[1])


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
class RunStage:
    """One instance of a static stage in a run. `name`: of a node, which is the group, the task, or the workflow itself."""

    name: str
    exempt: bool = False


_RETRY = re.compile(r"\(\d+\)\Z")
_LOOP = re.compile(r"\(\d+:[^()]*\)\Z")
_INSTANCES = re.compile(r"\(\d+(?::[^()]*)?\)")
_IN_GROUP = re.compile(r"(.*\[\d+\])\.[^.\[\]()]+\Z", re.S)
_HANDLER = re.compile(r"(?:\.onExit|\.hooks\.[^.\[\]()]+)\Z")
_BELOW_HANDLER = re.compile(r"\.onExit[.\[]|\.hooks\.[^.\[\]]+[.\[]")


def run_stage_of(node_name: str, workflow_name: str) -> RunStage:
    """The run stage of a pod, from its annotation `workflows.argoproj.io/node-name`.

    Argo removes all parentheses from the description of an item, so the remaining ones are its own. The name of a node does not
    distinguish a dag task called `hooks` or `onExit` from a hook or exit handler: it counts as one of those, and does not queue."""
    call = _LOOP.sub("", _RETRY.sub("", node_name))
    if call == workflow_name:
        return RunStage(call)
    below = call.removeprefix(workflow_name)
    if _HANDLER.search(below):
        return RunStage(call, True)
    group = _IN_GROUP.match(call)
    return RunStage(group[1] if group else call, bool(_BELOW_HANDLER.search(_INSTANCES.sub("", below))))
