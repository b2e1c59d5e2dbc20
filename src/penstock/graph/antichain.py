"""The heaviest set of nodes of a DAG of which no two are ordered: exact, without a transitive closure.

Called by demand, once for each resource. By Dilworth's theorem in its weighted form the answer is the least flow that covers
every node v at least weight(v) times. Start with one path for each unit of weight. Join the end of one path to the start of
another wherever a path leads from one to the other. The number of paths that remain is the answer. Joining is a maximum flow:

    source → out(v)  weight(v)      a path ends at v and looks for a start
    in(v) → sink     weight(v)      a path starts at v
    out(u) → in(v)   unbounded      for each edge u → v
    in(v) → out(v)   unbounded      a path may pass through v

The flow is found with Dinic's method on arrays, after a greedy start that already joins most of it. in(v), out(v), source and
sink are not stored as nodes: which array an entry is in says which it is. The minimum cut gives the set itself: v belongs to it
if out(v) can still be reached and in(v) cannot.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

THIN = 1.5
"""A graph with fewer edges than this for each node has long chains: open ends are carried down them first."""
PATIENCE = 40
"""Any other graph is treated the same after so many rounds of Dinic's method."""


class PartialOrder:
    """The edges of a DAG, prepared once. `heaviest` is then called for each weighting: one for each resource.

    Nodes are numbered in topological order: every edge (u, v) has u < v."""

    def __init__(self, size: int, edges: Iterable[tuple[int, int]]) -> None:
        self.size = size
        self.tail: list[int] = []
        self.head: list[int] = []
        self.down: list[list[int]] = [[] for _ in range(size)]
        self.up: list[list[int]] = [[] for _ in range(size)]
        self.below: list[list[int]] = [[] for _ in range(size)]
        """The target nodes of `down`, in the same order."""
        for edge, (u, v) in enumerate(edges):
            self.tail.append(u)
            self.head.append(v)
            self.down[u].append(edge)
            self.below[u].append(v)
            self.up[v].append(edge)
        chances = [len(edges_down) for edges_down in self.down]
        for edges_up in self.up:
            if len(edges_up) > 1:
                # Greedy joins begin with the nodes that have the fewest other choices.
                edges_up.sort(key=lambda edge: chances[self.tail[edge]])

    def heaviest(self, weights: Sequence[int]) -> tuple[int, list[int]]:
        """(weight, nodes) of the heaviest antichain."""
        unit = math.gcd(*weights)
        if not unit:
            return 0, []
        # Bytes in thousandths have twenty digits. Divided by their common divisor they are small, and arithmetic is fast.
        flow = _Flow(self, [weight // unit for weight in weights])
        flow.greedy()
        rounds = 0
        patience = 0 if len(self.tail) < THIN * self.size else PATIENCE
        while flow.levels():
            if rounds == patience:
                for choice in (0, -1):
                    flow.carry(choice)
            else:
                flow.push()
            rounds += 1
        nodes = [v for v in range(self.size) if flow.out_level[v] >= 0 > flow.in_level[v] and weights[v] > 0]
        return sum(flow.begins) * unit, nodes


class _Flow:
    """`ends[u]`: path ends at u that are not joined yet (source side). `begins[v]`: path starts at v that are not (sink side)."""

    def __init__(self, order: PartialOrder, weights: Sequence[int]) -> None:
        self.size = order.size
        self.tail, self.head, self.down, self.up = order.tail, order.head, order.down, order.up
        self.below = order.below
        self.used = [0] * len(order.tail)
        self.through = [0] * self.size
        self.ends = list(weights)
        self.begins = list(weights)
        self.in_level: list[int] = []
        self.out_level: list[int] = []
        self.last = 0

    def greedy(self) -> None:
        """Join along single edges."""
        ends, begins, tail, used, up = self.ends, self.begins, self.tail, self.used, self.up
        for v in range(self.size):
            wanted = begins[v]
            if not wanted:
                continue
            for edge in up[v]:
                end = ends[tail[edge]]
                if end:
                    taken = end if end < wanted else wanted
                    used[edge] += taken
                    ends[tail[edge]] = end - taken
                    wanted -= taken
                    if not wanted:
                        break
            begins[v] = wanted

    def carry(self, choice: int) -> None:
        """Moves every open end down: each node hands all that it has to one successor (its first or its last), and joins
        wherever it meets a start. This settles long chains, where joining along single edges leaves much for Dinic. What
        found no start is taken back: amounts are fixed from the bottom up."""
        ends, begins, down, head = self.ends, self.begins, self.down, self.head
        arrived = [0] * self.size
        taken = [0] * self.size
        via = [edges[choice] if edges else -1 for edges in down]
        for v in range(self.size):
            taken[v] = min(begins[v], arrived[v])
            if via[v] >= 0:
                arrived[head[via[v]]] += ends[v] + arrived[v] - taken[v]
        owed = [0] * self.size
        for v in range(self.size - 1, -1, -1):
            # What the nodes below v took of what v handed on: first v's own ends, then what passed through it.
            leaving = 0
            if via[v] >= 0 and owed[head[via[v]]]:
                below = head[via[v]]
                leaving = min(owed[below], ends[v] + arrived[v] - taken[v])
                owed[below] -= leaving
                self.used[via[v]] += leaving
            own = min(ends[v], leaving)
            ends[v] -= own
            self.through[v] += leaving - own
            begins[v] -= taken[v]
            owed[v] = taken[v] + leaving - own

    def levels(self) -> bool:
        """Breadth first from every open end; stops at the nearest open beginning. False if there is none to reach."""
        tail, below, up, used = self.tail, self.below, self.up, self.used
        through, begins = self.through, self.begins
        self.in_level = in_level = [-1] * self.size
        self.out_level = out_level = [-1] * self.size
        outs = [u for u in range(self.size) if self.ends[u]]
        for u in outs:
            out_level[u] = 0
        level = 0
        while outs:
            ins: list[int] = []
            found = False
            level += 1
            for u in outs:
                for v in below[u]:
                    if in_level[v] < 0:
                        in_level[v] = level
                        ins.append(v)
                        if begins[v]:
                            found = True
                if through[u] and in_level[u] < 0:
                    in_level[u] = level
                    ins.append(u)
                    if begins[u]:
                        found = True
            if found:
                self.last = level
                return True
            level += 1
            outs = []
            for v in ins:
                if out_level[v] < 0:
                    out_level[v] = level
                    outs.append(v)
                for edge in up[v]:
                    u = tail[edge]
                    if used[edge] and out_level[u] < 0:
                        out_level[u] = level
                        outs.append(u)
        return False

    def push(self) -> None:
        """Sends all that the current levels allow: depth first, without recursion, each arc visited once.

        A path is kept as (kind, edge or node, previous node), innermost last. Kinds: 0 along an edge, 1 back out of a node
        passed through, 2 through a node, 3 back along an edge in use."""
        tail, below, down, up, used, through = self.tail, self.below, self.down, self.up, self.used, self.through
        in_level, out_level, ends, begins, last = self.in_level, self.out_level, self.ends, self.begins, self.last
        next_out = [0] * self.size
        next_in = [0] * self.size
        for start in range(self.size):
            if out_level[start] != 0:
                continue
            path: list[tuple[int, int, int]] = []
            node, outside = start, True
            while ends[start]:
                if outside:
                    nodes, k, level = below[node], next_out[node], out_level[node] + 1
                    degree = len(nodes)
                    while k < degree and in_level[nodes[k]] != level:
                        k += 1
                    next_out[node] = k
                    if k < degree:
                        path.append((0, down[node][k], node))
                        node, outside = nodes[k], False
                    elif k == degree and through[node] and in_level[node] == level:
                        path.append((1, node, node))
                        outside = False
                    else:
                        out_level[node] = -2
                        if not path:
                            break
                        _, _, node = path.pop()
                        outside = False
                        next_in[node] += 1
                    continue
                if in_level[node] == last:
                    if begins[node]:
                        self.send(start, node, path)
                        path = []
                        node, outside = start, True
                        continue
                else:
                    edges, k, level = up[node], next_in[node], in_level[node] + 1
                    if k == 0 and out_level[node] == level:
                        path.append((2, node, node))
                        outside = True
                        continue
                    k = max(k, 1)
                    while k <= len(edges) and not (used[edges[k - 1]] and out_level[tail[edges[k - 1]]] == level):
                        k += 1
                    next_in[node] = k
                    if k <= len(edges):
                        path.append((3, edges[k - 1], node))
                        node, outside = tail[edges[k - 1]], True
                        continue
                in_level[node] = -2
                _, _, node = path.pop()
                outside = True
                next_out[node] += 1

    def send(self, start: int, goal: int, path: list[tuple[int, int, int]]) -> None:
        amount = min(self.ends[start], self.begins[goal])
        for kind, where, _ in path:
            if kind == 3:
                amount = min(amount, self.used[where])
            elif kind == 1:
                amount = min(amount, self.through[where])
        for kind, where, _ in path:
            if kind == 0:
                self.used[where] += amount
            elif kind == 1:
                self.through[where] -= amount
            elif kind == 2:
                self.through[where] += amount
            else:
                self.used[where] -= amount
        self.ends[start] -= amount
        self.begins[goal] -= amount
