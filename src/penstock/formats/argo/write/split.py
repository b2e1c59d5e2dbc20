"""Splits a graph that is too large for one Argo dag into nested dags. Called by dag for every workflow, and by documents for what is too
large for one object.

An Argo dag has at most 200 tasks. A larger graph is split into clusters, each a template and one task of the dag around it. A cluster must be
convex (no path leaves it and comes back), or the dag of clusters would have a cycle. The level of a step is the length of the longest path to it.
Consecutive levels are split into connected components. These are convex, because every path between two steps of a component within those levels
belongs to it, and components of the same levels have no edges between them, so they may share a cluster. Values that cross the border of a cluster
become its inputs and outputs.

A task that waits for a cluster waits for all of it. A step that reads the outcome of another (other than success) stays in one cluster with it;
a step that accepts every outcome is never put into a cluster with others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.formats.argo.write.context import NameAllocator
from penstock.formats.argo.write.variables import NotInArgo

MOST_TASKS: Final = 200
MOST_INPUTS: Final = 450
"""The most parameters of a cluster; Argo allows 500."""
MOST_BYTES: Final = 250_000
"""The most bytes of the arguments of a cluster's tasks. A template must fit into one document."""

MOST_TOGETHER: Final = 400_000
"""The most bytes of the arguments of all tasks of a dag, clusters included."""

Key = tuple[str, str, str]
"""parameters, artifacts or result · step · output; or `param` · name · its kind."""


@dataclass(eq=False)
class DagScope:
    """One dag that is being written: its tasks, and the values that cross its border."""

    parent: DagScope | None
    template: str
    task: str = ""
    """Its task name in the dag around it."""
    names: NameAllocator = field(default_factory=NameAllocator)
    tasks: dict[str, str] = field(default_factory=dict)
    """Step -> the name of its task here."""
    children: list[DagScope] = field(default_factory=list)
    homes: dict[str, DagScope] = field(default_factory=dict)
    """Step -> the dag that it is a task of; shared by all dags of one workflow."""
    imports: dict[Key, str] = field(default_factory=dict)
    exports: dict[Key, str] = field(default_factory=dict)
    _inside: NameAllocator = field(default_factory=NameAllocator)

    def path(self, key: Key) -> tuple[str, ...]:
        """The variable of a value in this dag: an output of one of its tasks, or one of its inputs."""
        kind, step, name = key
        if kind == "param":
            return ("inputs", name, step) if self.parent is None else self._import(key)
        home = self.homes[step]
        if home is self:
            return self._own(self.tasks[step], kind, name)
        child = self.holding(home)
        if child is None:
            return self._import(key)
        if kind in ("status", "exitCode"):
            raise NotInArgo(f"how {step} ended is asked in another part of a workflow that had to be cut", code="P843")
        kind = "artifacts" if kind == "artifacts" else "parameters"
        return ("tasks", child.task, "outputs", kind, child.export(key))

    def _own(self, task: str, kind: str, name: str) -> tuple[str, ...]:
        if kind in ("status", "exitCode"):
            return ("tasks", task, kind)
        return ("tasks", task, "outputs", "result") if kind == "result" else ("tasks", task, "outputs", kind, name)

    def holding(self, home: DagScope) -> DagScope | None:
        """The child that contains this dag; None if none does."""
        at: DagScope | None = home
        while at is not None and at.parent is not self:
            at = at.parent
        return at

    def _import(self, key: Key) -> tuple[str, ...]:
        kind, step, name = key
        if kind in ("status", "exitCode"):
            raise NotInArgo(f"how {step} ended is asked in another part of a workflow that had to be cut", code="P843")
        known = self.imports.get(key)
        if known is None:
            known = self.imports[key] = self._inside.fresh(step if kind == "param" else f"{step}-{name}")
        which = name if kind == "param" else "artifacts" if kind == "artifacts" else "parameters"
        return ("inputs", which, known)

    def export(self, key: Key) -> str:
        known = self.exports.get(key)
        if known is None:
            known = self.exports[key] = self._inside.fresh(f"{key[1]}-{key[2]}")
        return known

    def sibling(self, step: str) -> str | None:
        """The task of this dag for a step, or for the cluster that contains it; None if it is elsewhere."""
        home = self.homes[step]
        if home is self:
            return self.tasks[step]
        child = self.holding(home)
        return None if child is None else child.task


# -- cutting ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StepCluster:
    """A step, or steps that must stay together, or a cluster of them."""

    steps: list[str]
    weight: int
    """The number of tasks in the dag around it."""
    size: int
    """Approximate bytes."""
    ups: set[int]
    reads: set[tuple[str, str]]
    """(step, output) that it reads."""
    alone: bool = False
    inner: list[StepCluster] = field(default_factory=list)
    """The content of a cluster; empty for steps."""


def cut(nodes: list[StepCluster]) -> list[StepCluster]:
    """Clusters and single steps, at most as many as one dag allows. Raises NotInArgo."""
    for node in nodes:
        if node.weight > MOST_TASKS:
            why = (
                f"{node.weight:,} steps ask how one another ended, and must be in one dag, which may have {MOST_TASKS}"
            )
            raise NotInArgo(why, "wait for steps to go well, or put some of them into a workflow of their own", "P843")
    before = (0, 0)
    while (total := _total(nodes))[0] > MOST_TASKS or total[1] > MOST_TOGETHER:
        if total == before and total[0] <= MOST_TASKS:
            break  # one task alone is too large; it may still fit
        if total == before:
            why = f"its {sum(len(node.steps) for node in nodes):,} steps cannot be cut into dags of {MOST_TASKS}"
            raise NotInArgo(why, "let fewer steps ask how others ended, or read fewer values in one place", "P843")
        before, nodes = total, _clustered(nodes)
    return nodes


def _total(nodes: Sequence[StepCluster]) -> tuple[int, int]:
    """Tasks, and bytes of those that could go into a dag of their own."""
    moving = (node.size for node in nodes if not node.alone and len(node.reads) <= MOST_INPUTS)
    return sum(node.weight for node in nodes), sum(moving)


def _clustered(nodes: list[StepCluster]) -> list[StepCluster]:
    made: list[StepCluster] = []
    place: dict[int, int] = {}
    for run in _runs(nodes):
        for part in _packed(nodes, run):
            for one in part:
                place[one] = len(made)
            made.append(nodes[part[0]] if len(part) == 1 and not _heavy(nodes[part[0]]) else _joined(nodes, part))
    for node, of in zip(made, _members(len(made), place), strict=True):
        node.ups = {place[up] for one in of for up in nodes[one].ups} - {place[of[0]]}
    return made


def _heavy(node: StepCluster) -> bool:
    """Is it worth a dag of its own?"""
    large = node.size > MOST_BYTES // 5 and not node.inner and len(node.reads) <= MOST_INPUTS
    return not node.alone and (node.weight > 1 or large)


def _members(count: int, place: Mapping[int, int]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for one, at in place.items():
        found[at].append(one)
    return found


def _joined(nodes: Sequence[StepCluster], part: Sequence[int]) -> StepCluster:
    inner = [nodes[one] for one in part]
    steps = [step for node in inner for step in node.steps]
    own = set(steps)
    reads = {read for node in inner for read in node.reads if read[0] not in own}
    return StepCluster(steps, 1, 200 + 100 * len(reads), set(), reads, inner=inner)


def _levels(nodes: Sequence[StepCluster]) -> list[list[int]]:
    depth: list[int] = [-1] * len(nodes)
    for start in range(len(nodes)):
        waiting = [start]
        while waiting:
            one = waiting[-1]
            open_ups = [up for up in nodes[one].ups if depth[up] < 0] if depth[one] < 0 else []
            if open_ups:
                waiting += open_ups
                continue
            waiting.pop()
            if depth[one] < 0:
                depth[one] = 1 + max((depth[up] for up in nodes[one].ups), default=-1)
    levels: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for one, level in enumerate(depth):
        levels[level].append(one)
    return levels


def _runs(nodes: list[StepCluster]) -> Iterable[list[list[int]]]:
    """Runs of consecutive levels whose components fit a cluster; each as a list of components."""
    parts = _Parts(nodes)
    for level in _levels(nodes):
        if not parts.take(level):
            yield parts.listed()
            parts = _Parts(nodes)
            parts.take(level, first=True)
    yield parts.listed()


class _Parts:
    """The connected components of some levels, updated as levels are added."""

    def __init__(self, nodes: Sequence[StepCluster]) -> None:
        self.nodes = nodes
        self.above: dict[int, int] = {}
        self.members: dict[int, list[int]] = {}
        self.reads: dict[int, set[tuple[str, str]]] = {}
        self.weight: dict[int, int] = {}
        self.size: dict[int, int] = {}

    def root(self, one: int) -> int:
        while self.above[one] != one:
            self.above[one] = self.above[self.above[one]]
            one = self.above[one]
        return one

    def take(self, level: Sequence[int], first: bool = False) -> bool:
        """Adds a level, unless a component would grow too large. The first level of a run is always added."""
        links: list[tuple[int, int]] = []
        for one in level:
            self.above[one] = one
            node = self.nodes[one]
            self.members[one], self.reads[one] = [one], set(node.reads)
            self.weight[one], self.size[one] = node.weight, node.size
            links += [(one, up) for up in node.ups if up in self.above]
        if not first and self._too_large(links):
            for one in level:
                del self.above[one], self.members[one], self.reads[one], self.weight[one], self.size[one]
            return not self.members and self.take(level, first=True)
        for one, up in links:
            self._union(one, up)
        return True

    def _too_large(self, links: Sequence[tuple[int, int]]) -> bool:
        """Would these links make a component that is too large? The links are not added."""
        above: dict[int, int] = {}

        def root(one: int) -> int:
            while one in above:
                one = above[one]
            return one

        joined: dict[int, list[int]] = {}
        weight: dict[int, int] = {}
        for one, up in links:
            if self.nodes[one].alone or self.nodes[up].alone:
                return True
            left, right = root(self.root(one)), root(self.root(up))
            if left == right:
                continue
            above[left] = right
            weight[right] = weight.pop(left, self.weight[left]) + weight.get(right, self.weight[right])
            joined[right] = [*joined.pop(left, [left]), *joined.pop(right, [right])]
            if weight[right] > MOST_TASKS:
                return True
        return any(
            sum(self.size[part] for part in parts) > MOST_BYTES or self._many_reads(parts) for parts in joined.values()
        )

    def _many_reads(self, parts: Sequence[int]) -> bool:
        if sum(len(self.reads[part]) for part in parts) <= MOST_INPUTS:
            return False
        own = {step for part in parts for one in self.members[part] for step in self.nodes[one].steps}
        return len({read for part in parts for read in self.reads[part] if read[0] not in own}) > MOST_INPUTS

    def _union(self, one: int, other: int) -> None:
        left, right = self.root(one), self.root(other)
        if left == right:
            return
        if len(self.members[left]) > len(self.members[right]):
            left, right = right, left
        self.above[left] = right
        self.members[right] += self.members.pop(left)
        self.reads[right] |= self.reads.pop(left)
        self.weight[right] += self.weight.pop(left)
        self.size[right] += self.size.pop(left)

    def listed(self) -> list[list[int]]:
        return sorted((sorted(members) for members in self.members.values()), key=lambda members: members[0])


def _packed(nodes: Sequence[StepCluster], parts: Sequence[list[int]]) -> Iterable[list[int]]:
    """Components of one run, packed into clusters. They have no edges between them."""
    pack: list[int] = []
    weight = size = 0
    reads: set[tuple[str, str]] = set()
    for part in parts:
        if len(part) == 1 and nodes[part[0]].alone:
            yield part
            continue
        own = {step for one in part for step in nodes[one].steps}
        wanted = {read for one in part for read in nodes[one].reads if read[0] not in own}
        heavy, bytes_ = sum(nodes[one].weight for one in part), sum(nodes[one].size for one in part)
        new = wanted - reads
        full = weight + heavy > MOST_TASKS or size + bytes_ > MOST_BYTES or len(reads) + len(new) > MOST_INPUTS
        if pack and full:
            yield pack
            pack, weight, size, reads = [], 0, 0, set()
        pack += part
        weight, size = weight + heavy, size + bytes_
        reads |= wanted
    if pack:
        yield pack


def nodes_of(
    order: Sequence[str],
    ups: Mapping[str, Collection[str]],
    together: Iterable[tuple[str, str]],
    alone: Collection[str],
    weight: Callable[[str], int],
    size: Callable[[str], int],
    reads: Callable[[str], Iterable[tuple[str, str]]],
) -> list[StepCluster]:
    """Steps as Clusters; those of `together`, with everything on a path between them, in one."""
    group = _grouped(order, ups, together)
    listed: dict[int, list[str]] = {}
    for step in order:
        listed.setdefault(group[step], []).append(step)
    number = {key: at for at, key in enumerate(listed)}
    found = []
    for key, steps in listed.items():
        own = set(steps)
        outer = {number[group[up]] for step in steps for up in ups[step]} - {number[key]}
        wanted = {read for step in steps for read in reads(step) if read[0] not in own}
        inner = (
            [StepCluster([step], weight(step), size(step), set(), set()) for step in steps] if len(steps) > 1 else []
        )
        found.append(
            StepCluster(
                steps,
                sum(map(weight, steps)),
                sum(map(size, steps)),
                outer,
                wanted,
                steps[0] in alone and len(steps) == 1,
                inner,
            )
        )
    return found


def _grouped(
    order: Sequence[str], ups: Mapping[str, Collection[str]], together: Iterable[tuple[str, str]]
) -> dict[str, int]:
    """Step -> its group. Groups in a cycle are merged."""
    number = {step: at for at, step in enumerate(order)}
    above = list(range(len(order)))

    def root(one: int) -> int:
        while above[one] != one:
            above[one] = above[above[one]]
            one = above[one]
        return one

    pairs = [(number[one], number[other]) for one, other in together]
    if not pairs:
        return number
    for one, other in pairs:
        above[root(one)] = root(other)
    edges: dict[int, set[int]] = {}
    for step in order:
        edges.setdefault(root(number[step]), set()).update(root(number[up]) for up in ups[step])
    for circle in circles(edges):
        for one in circle[1:]:
            above[root(one)] = root(circle[0])
    return {step: root(at) for step, at in number.items()}


def circles(edges: Mapping[int, set[int]]) -> list[list[int]]:
    """Sets of nodes that reach one another (Tarjan), those of more than one node."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on: set[int] = set()
    found: list[list[int]] = []
    for start in edges:
        if start in index:
            continue
        work: list[tuple[int, Any]] = [(start, iter(edges[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on.add(start)
        while work:
            one, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[one])
                if low[one] == index[one]:
                    circle = []
                    while True:
                        top = stack.pop()
                        on.discard(top)
                        circle.append(top)
                        if top == one:
                            break
                    if len(circle) > 1:
                        found.append(circle)
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on.add(following)
                work.append((following, iter(edges.get(following, ()))))
            elif following in on:
                low[one] = min(low[one], index[following])
    return found


# -- documents --------------------------------------------------------------------------------------------------------


def packed_documents(sizes: Mapping[str, int], most_bytes: int, most_templates: int) -> list[list[str]]:
    """Packs templates into documents, in the given order. Raises NotInArgo if one alone does not fit."""
    found: list[list[str]] = []
    filled = 0
    for name, size in sizes.items():
        if size > most_bytes:
            why = f"the template {name} alone has {size:,} bytes, and an object may have a mebibyte"
            raise NotInArgo(why, "put large values into files, or read them from an earlier step", "P843")
        if not found or filled + size > most_bytes or len(found[-1]) >= most_templates:
            found.append([])
            filled = 0
        found[-1].append(name)
        filled += size
    return found
