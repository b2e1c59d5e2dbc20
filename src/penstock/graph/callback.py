"""A callback as the author wrote it: an HTTP request to be sent when a run has ended. Part of the model; sent by service.callbacks.

What it says may be expressions over `run.id`, `run.workflow`, `run.state`, `run.error`, `run.started`, `run.ended`, `run.user`, over `params.NAME`
and `outputs.NAME` of the workflow, and, with `items`, over `item`. Its headers, its body and its `secret` may read `secrets.NAME`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.expressions.parse import Expr

CALLBACK_ENDS: Final = ("succeeded", "failed", "cancelled", "invalid")
"""A run whose input is not valid has failed, too; only `invalid` names it."""
CALLBACK_METHODS: Final = ("POST", "PUT", "PATCH", "GET", "DELETE")
VERDICTS: Final = ("success", "retry", "fatal")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRule:
    """What an answer means. The first rule that fits counts; with none of its fields a rule fits every answer."""

    then: str
    """success, retry or fatal."""
    status: tuple[str | int, ...] = ()
    """`404`, `5xx`, `500-599`."""
    when: Expr | None = None
    """Over `answer.status`, `answer.headers` (names in lower case) and `answer.body` (data if it is JSON, text otherwise)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRetry:
    """At most so many attempts. Before the next one it waits a random time, at most `initial` seconds, then `factor` times longer each time,
    never more than `longest`."""

    attempts: int = 10
    initial: float = 2
    factor: float = 2.0
    longest: float = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """An HTTP request that is sent when a run has ended."""

    name: str
    url: Any
    on: tuple[str, ...] = CALLBACK_ENDS
    """How the run has to have ended."""
    items: Any = None
    """A list: one request for each of its items, each with retries of its own."""
    filter: Expr | None = None
    """False: nothing is sent, or not for this item."""
    method: str = "POST"
    headers: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    """Text, or data that is sent as JSON. None: what there is to know of the run, as JSON."""
    secret: Any = None
    """The key of its signature: `${{ secrets.NAME }}`."""
    answers: tuple[AnswerRule, ...] = ()
    """Before the usual rules: 2xx is success; 408, 425, 429, 5xx and no answer are retried; all others are fatal."""
    retry: CallbackRetry = CallbackRetry()
    timeout: float = 10
    """Seconds for one attempt, the answer included."""
