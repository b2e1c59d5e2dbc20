"""The runs that the links of one run start, made ready to be recorded. Called by delivery."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from penstock.engine.follow import FOLLOW
from penstock.errors import PlanError, Problem, StoreError, UserError
from penstock.graph import codec
from penstock.graph.chains import defined, in_order, name_of, target_of
from penstock.graph.model import Link, Workflow
from penstock.service import stores
from penstock.service.chains.passing import Before, Passing, PayloadPassing, output_payload
from penstock.service.payloads.decide import decide
from penstock.service.payloads.identity import payload_id
from penstock.service.payloads.process import Definition, carries, definitions
from penstock.service.payloads.submit import by_reference, label_of
from penstock.service.submission import LINK, Submission
from penstock.settings import Settings
from penstock.store.links import LinkRow
from penstock.store.records import Origin, PayloadRecord, RunRecord
from penstock.store.sql import Store

KNOWN = "its payload has a run already"


class Prepared(NamedTuple):
    """A run that is checked, with its payload if it is known by one."""

    submission: Submission
    payload: str = ""
    """The id of its payload."""
    label: str = ""
    version: int = 0
    replace: bool = False

    def record(self, store: Store, now: float, origin: Origin) -> tuple[int, str]:
        """Part of the open transaction. The number of the run; and if there was one that does, that it is so."""
        submission = self.submission
        if not self.payload:
            number = submission.record(store, now, origin).number
            store.orders.put(number, "run", {})
            return number, ""

        def create(_: PayloadRecord | None, attempt: int) -> RunRecord:
            return submission.record(store, now, origin._replace(payload=self.payload, attempt=attempt))

        def why(known: PayloadRecord | None) -> str:
            return decide(known, self.version, self.replace, now)

        of = (self.payload, submission.workflow.name, self.label, self.version)
        known, run = store.payloads.submit(*of, why, create, now, submission.person)
        if run is None and known.run_state == "stopped":
            store.payloads.order(known.run, now)
        return known.run, "" if run is not None else KNOWN


class Maker:
    """`head`: the run whose links these are. `rows`: what became of them; the one that has just ended is among them."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        workflow: Workflow,
        head: RunRecord,
        rows: Mapping[str, LinkRow],
        groups: Sequence[str] | None,
    ) -> None:
        self.head = head
        self._settings = settings
        self._store = store
        self._workflow = workflow
        self._rows = rows
        self._groups = None if groups is None else tuple(groups)
        self.fault: UserError | None = None
        """What is wrong with the process that its payload names."""
        self._process = self._asked_for()

    @property
    def links(self) -> list[Link]:
        """In order: those of the workflow, then those that the payload asks for."""
        return [*in_order(self._workflow), *(one.link for one in self._process.values())]

    def _asked_for(self) -> dict[str, Definition]:
        if self._workflow.payload is None:
            return {}
        try:
            payload = output_payload(self._settings, self._workflow, self.head)
            if not carries(payload):
                return {}
            taken = [name_of(link) for link in self._workflow.links]
            return {name_of(one.link): one for one in definitions(payload, taken)}
        except StoreError:
            raise
        except UserError as error:
            self.fault = error
            return {}

    def passing(self, link: Link) -> Passing | PayloadPassing:
        """Raises UserError."""
        before = [self._before(name) for name in link.after or ("",)]
        definition = self._process.get(name_of(link))
        given = (self._target(link)[0], self.head, before)
        if definition is not None:
            return PayloadPassing(self._settings, definition, *given)
        return Passing(self._settings, link, *given)

    @cached_property
    def _by_name(self) -> dict[str, Link]:
        return {name_of(link): link for link in self.links}

    def _before(self, name: str) -> Before:
        workflow = self._target(self._by_name[name])[0] if name else self._workflow
        row = self._rows.get(name)
        run = None if row is None or not row.run else self._store.runs.by_number(row.run)
        return Before(workflow, run if run is not None else self.head if not name else None)

    def _target(self, link: Link) -> tuple[Workflow, str]:
        """What it runs, and the code of its functions. Raises PlanError."""
        known = defined(self._workflow)
        bundle = self.head.options.get("bundle", "")
        if name_of(link) not in self._process:
            return target_of(self._workflow, link), bundle
        if link.workflow in known:
            others = tuple(one for name, one in known.items() if name != link.workflow)
            return replace(known[link.workflow], definitions=others), bundle
        newest = self._store.runs.newest(limit=1, workflow=link.workflow)
        if not newest:
            fix = "define it with the workflow of the payload (catalogue=[…], or `definitions`), or run it once"
            message = f"`process` of the payload names {link.workflow[:80]!r}, and no such workflow is known"
            raise PlanError(Problem("P549", message, fix))
        found = codec.from_data(json.loads(self._store.runs.document(newest[0].digest)), newest[0].id)
        return found, newest[0].options.get("bundle", "")

    def prepared(self, link: Link) -> Prepared:
        """Raises UserError: it cannot be run, or the person who began the chain may not."""
        passing = self.passing(link)
        made = self._submission(link, passing.params())
        if not isinstance(passing, PayloadPassing):
            return Prepared(made)
        payload, identity = made.params[passing.name], made.workflow.payload
        by_reference(made, passing.name, stores.blobs_of(self._settings))
        if identity is None:
            return Prepared(made)
        again = self._process[name_of(link)].process[0].get("replace") is True
        id = payload_id(made.workflow.name, identity, payload)
        return Prepared(made, id, label_of(payload), identity.version, again)

    def _submission(self, link: Link, params: Mapping[str, Any]) -> Submission:
        given, head = self.head.options, self.head
        kept: dict[str, Any] = {name: given[name] for name in ("file", "fail_fast", "fresh", "on") if given.get(name)}
        target, bundle = self._target(link)
        made = Submission(
            target,
            params,
            person=head.user,
            groups=self._groups,
            place=given.get("place", ""),
            scheduler=self._settings.scheduler,
            **kept,
        )
        if bundle:
            made.options["bundle"] = bundle
        if "secrets" in given:
            made.options["secrets"] = given["secrets"]
        about = {"head": head.number, "place": name_of(link)}
        if self._groups is not None:
            about["groups"] = list(self._groups)
        made.options[FOLLOW] = [*made.options.get(FOLLOW, ()), {"kind": LINK, "data": about}]
        made.copy_files(self._settings)
        made.admit(self._store)
        tracked = self._store.tracking.of(head.number)
        made.tracked = None if tracked is None else (tracked.url, tracked.experiment)
        return made
