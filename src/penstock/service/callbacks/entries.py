"""What is to follow from the end of a run, for its callbacks; and callbacks that are only for one run. Called by Submission
and by the run command.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PlanError, Problem, UserError
from penstock.graph.callback import Callback
from penstock.graph.check.callbacks import url_problem
from penstock.graph.model import Workflow
from penstock.settings import Settings

if TYPE_CHECKING:
    from penstock.service.callbacks.guard import AddressGuard

KIND: Final = "callback"


def entries(workflow: Workflow) -> list[dict[str, Any]]:
    """For the option `follow` of a run. What is to be sent stands in its workflow, under this name."""
    return [{"kind": KIND, "on": list(one.on), "data": {"callback": one.name}} for one in workflow.callbacks]


def with_urls(workflow: Workflow, urls: Iterable[str]) -> Workflow:
    """The workflow with a callback for each URL, on every end. Raises PlanError."""
    known = {one.name for one in workflow.callbacks}
    more: list[Callback] = []
    for url in urls:
        if wrong := url_problem(url):
            raise PlanError(Problem("P524", f"--callback: {wrong}", "give a URL of the form https://host/path"))
        number = len(more) + 1
        while f"url-{number}" in known:
            number += 1
        known.add(f"url-{number}")
        more.append(Callback(name=f"url-{number}", url=url))
    return dataclasses.replace(workflow, callbacks=(*workflow.callbacks, *more)) if more else workflow


def guard_of(settings: Settings) -> AddressGuard:
    """Raises UserError."""
    from penstock.service.callbacks import guard  # what a run without callbacks has no use for

    try:
        return guard.parse(settings.callback_hosts)
    except ValueError as error:
        fix = "give addresses (10.1.2.3), networks (10.1.0.0/16) and names (hooks.internal, *.internal), separated by commas"
        message = f"{guard.VARIABLE}: {str(error)[:80]!r} is neither an address, a network nor a name"
        raise UserError(Problem("P520", message, fix)) from None
