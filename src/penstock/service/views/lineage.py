"""Lineage: the runs that follow from one another by links, with the links that started none and why. Called by `penstock show --lineage`, the API,
the page of a run and LocalRunner.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.graph import codec
from penstock.graph.chains import name_of
from penstock.graph.model import Link, Workflow
from penstock.service.run_records import state_of
from penstock.store.links import STARTED, LinkRow
from penstock.store.records import Origin, RunRecord
from penstock.store.sql import Store

WAITING: Final = "waiting"
REMOVED: Final = "removed"


@dataclass(slots=True)
class LineageNode:
    """One run, or one link that has started none, with what follows from it."""

    link: str
    """Empty: the first run."""
    workflow: str
    state: str
    """Of the run; skipped, omitted, dead or waiting if there is none; removed: `penstock gc` has removed it."""
    run: str = ""
    number: int = 0
    parent: str = ""
    """The run whose end started it."""
    why: str = ""
    """It has not been started."""
    error: str = ""
    after: list[LineageNode] = field(default_factory=list)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, LineageNode]]:
        """With what follows, from the top; how deep each is."""
        left = [(depth, self)]
        while left:
            at, one = left.pop()
            yield at, one
            left += [(at + 1, other) for other in reversed(one.after)]

    def as_data(self) -> dict[str, Any]:
        rows = [
            {
                "run": one.run or None,
                "workflow": one.workflow,
                "state": one.state,
                "link": one.link,
                "parent": one.parent or None,
                "depth": depth,
                "why": one.why,
                "error": one.error,
            }
            for depth, one in self.walk()
        ]
        return {"root": self.run, "links": rows}


def in_chain(store: Store, run: RunRecord) -> bool:
    """Does anything follow from it, or does it follow from another?"""
    return store.runs.origin(run.number) is not None and len(store.links.of_root(root_of(store, run))) > 0


def root_of(store: Store, run: RunRecord) -> int:
    origin = store.runs.origin(run.number)
    return run.number if origin is None else origin.root


def lineage(store: Store, run: RunRecord) -> LineageNode:
    """Of the run that a run follows from in the first place."""
    return _Lineages(store, root_of(store, run)).made(run)


class _Lineages:
    def __init__(self, store: Store, root: int) -> None:
        self._store = store
        self._root = root
        self._documents: dict[str, Workflow] = {}
        self._origins: dict[int, Origin] = {one.run: one for one in store.runs.origins_of_root(root)}
        self._rows: dict[int, dict[str, LinkRow]] = {}
        for row in store.links.of_root(root):
            self._rows.setdefault(row.head, {})[row.name] = row
        self._runs: dict[int, LineageNode] = {}

    def made(self, run: RunRecord) -> LineageNode:
        numbers = sorted({self._root, run.number, *self._origins})
        records = {number: self._store.runs.by_number(number) for number in numbers}
        names = {row.run: row for rows in self._rows.values() for row in rows.values() if row.run and row.name}
        for number, record in records.items():
            origin = self._origins.get(number)
            found = names.get(number)
            if record is None:
                self._runs[number] = LineageNode(
                    "" if found is None else found.name, "" if found is None else found.workflow, REMOVED
                )
                continue
            state = state_of(self._store, record)
            link = "" if origin is None else origin.link
            self._runs[number] = LineageNode(link, record.workflow, state, record.id, number, error=record.error)
        for number, one in self._runs.items():
            origin = self._origins.get(number)
            if origin is not None and origin.parent and origin.parent != number:
                above = self._runs.get(origin.parent) or self._runs[self._root]
                one.parent = above.run
                above.after.append(one)
        for number, record in records.items():
            if record is not None:
                self._not_started(record, number)
        return self._runs[self._root]

    def _not_started(self, record: RunRecord, number: int) -> None:
        """Links of this run that have started none, each below what it comes after; and those that found a run of another chain."""
        rows = self._rows.get(number, {})
        if not rows and number != self._root and not record.options.get("follow"):
            return
        links = {name_of(link): link for link in self._workflow(record).links}
        asked = {name: Link(workflow=row.workflow, name=name) for name, row in rows.items() if name}
        places: dict[str, LineageNode] = {"": self._runs[number]}
        for name, link in {**links, **{name: one for name, one in asked.items() if name not in links}}.items():
            row = rows.get(name)
            if row is not None and row.state == STARTED and row.run in self._runs:
                places[name] = self._runs[row.run]
                continue
            made = LineageNode(name, link.workflow, WAITING if row is None else row.state, why=self._why(link, row))
            if row is not None and row.state == STARTED:
                self._found(made, row)
            places[name] = made
            above = places.get((link.after or ("",))[0], self._runs[number])
            made.parent = above.run
            above.after.append(made)

    def _found(self, made: LineageNode, row: LinkRow) -> None:
        record = self._store.runs.by_number(row.run)
        made.state = REMOVED if record is None else state_of(self._store, record)
        if record is not None:
            made.run, made.number, made.error = record.id, record.number, record.error

    def _why(self, link: Link, row: LinkRow | None) -> str:
        if row is not None:
            return row.why
        return f"waits for {' and '.join(link.after) or 'the run'}"

    def _workflow(self, record: RunRecord) -> Workflow:
        found = self._documents.get(record.digest)
        if found is None:
            found = codec.from_data(json.loads(self._store.runs.document(record.digest)), record.id)
            self._documents[record.digest] = found
        return found


def not_started(found: LineageNode) -> list[LineageNode]:
    """The links that will start no run any more."""
    return [one for _, one in found.walk() if not one.run and one.state not in (WAITING, REMOVED)]
