"""What an answer of a receiver means. Called by delivery. Pure.

The callback's own rules come first. Then: 2xx is success; 408, 425, 429 and 5xx are tried again; all else is fatal. No answer at all is tried
again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.parse import references
from penstock.graph.callback import AnswerRule

SUCCESS, RETRY, FATAL = "success", "retry", "fatal"
AGAIN: Final = frozenset({408, 425, 429})
SHOWN: Final = 200
"""Characters of an answer in an error."""


class ReceiverAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    data: bytes = b""
    whole: bool = True
    """False: the body was too long, or did not come in time."""

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class Verdict(NamedTuple):
    then: str
    error: str = ""
    """Why it is no success."""
    after: float | None = None
    """Seconds that the receiver asks to wait."""


def judge(rules: Sequence[AnswerRule], answer: ReceiverAnswer, now: float) -> Verdict:
    scope = {"answer": {"status": answer.status, "headers": dict(answer.headers), "body": _body(answer)}}
    for rule in rules:
        if reads_body(rule) and not answer.whole and _status_fits(rule, answer.status):
            return Verdict(RETRY, f"answered {answer.status}, and the rest of the answer did not come")
        try:
            fits = _status_fits(rule, answer.status) and (rule.when is None or evaluate(rule.when, scope) is True)
        except EvaluationError:  # `answer.body.code` where the body is text: the rule is about another answer
            fits = False
        if fits:
            return _verdict(rule.then, answer, now)
    if 200 <= answer.status < 300:
        return _verdict(SUCCESS, answer, now)
    return _verdict(RETRY if answer.status in AGAIN or answer.status >= 500 else FATAL, answer, now)


def reads_body(rule: AnswerRule) -> bool:
    return rule.when is not None and any(path in (("answer",), ("answer", "body")) for path in _heads(rule.when.text))


def _heads(text: str) -> list[tuple[str, ...]]:
    return [path[:2] for path in references(text)]


def _verdict(then: str, answer: ReceiverAnswer, now: float) -> Verdict:
    if then == SUCCESS:
        return Verdict(SUCCESS)
    text = " ".join(answer.text.split())
    said = f": {text if len(text) <= SHOWN else text[: SHOWN - 1] + '…'}" if text else ""
    return Verdict(then, f"answered {answer.status}{said}", retry_after(answer.headers.get("retry-after", ""), now))


def retry_after(text: str, now: float) -> float | None:
    """Seconds, from a number or a date; None if it says nothing that can be read."""
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:12])
    with suppress(ValueError, TypeError, OverflowError, IndexError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    return None


def _status_fits(rule: AnswerRule, status: int) -> bool:
    return not rule.status or any(_fits(str(one), status) for one in rule.status)


def _fits(pattern: str, status: int) -> bool:
    if pattern.endswith("xx"):
        return status // 100 == int(pattern[0])
    low, _, high = pattern.partition("-")
    return int(low) <= status <= int(high or low)


def _body(answer: ReceiverAnswer) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(answer.text)
    return answer.text
