"""Has an object succeeded or failed? Called by resource for each look at it.

Without the author's own conditions, those of its kind are used for what the step creates or applies (scheduling.kinds.outcomes). A field that does not exist yet means "not
yet". Failure is checked before success. While a queue holds the object, or somebody is deleting it, the author's failure condition is not asked: it is not the program that
ended then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.parse import Expr
from penstock.graph import model
from penstock.scheduling.kinds import outcomes

MADE = ("create", "apply")
"""Actions that make an object, so that its end is the end of the step."""
Say = Callable[[str], None]


class ResourceFailed(Exception):
    """The object is not as the step wants it. The message is a sentence."""


class ResourceLost(Exception):
    """The object is gone, or was taken from its machine, and that is no fault of its program. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class ObjectConditions:
    success: Expr | None
    failure: Expr | None
    waiting_for: str
    """What the log says while neither holds."""
    own_failure: bool
    """Is the failure condition the author's own?"""
    made: bool
    """Does the step make the object? Then what holds the object holds the step."""

    @classmethod
    def of(cls, action: model.Resource, manifest: Mapping[str, Any]) -> ObjectConditions:
        known = outcomes.ending_of(manifest) if action.action in MADE else None
        success, failure = action.success_condition, action.failure_condition
        if known is not None:
            success = success or (Expr.of(known.success) if known.success else None)
            failure = failure or (Expr.of(known.failure) if known.failure else None)
        if success is not None and success.text == "true":
            failure = action.failure_condition
        text = "" if action.success_condition is None else action.success_condition.text
        waiting_for = text or f"the {manifest.get('kind')} to end well"
        return cls(success, failure, waiting_for, action.failure_condition is not None, action.action in MADE)

    def held(self, object_: Any) -> str:
        """Why the object of the step does nothing at present; empty if it may go on."""
        return outcomes.waits(object_) if self.made else ""

    def hold(self, what: str, object_: Any, say: Say) -> bool:
        """True: it has succeeded. `what`: the object's name. Raises ResourceFailed, ResourceLost."""
        scope = parts_of(object_)
        held = self.made and (self.held(object_) or scope["metadata"].get("deletionTimestamp"))
        if self.failure is not None and not (held and self.own_failure) and _holds(self.failure, scope, say):
            taken = outcomes.disrupted(object_) if self.made else ""
            if taken:
                raise ResourceLost(f"{what} was taken from its node: {taken}")
            by = f": {self.failure.text}" if self.own_failure else ""
            raise ResourceFailed(f"{what} has failed{by}{_why(scope['status'])}")
        return self.success is None or _holds(self.success, scope, say)


def parts_of(object_: Any) -> dict[str, Any]:
    whole = object_ if isinstance(object_, Mapping) else {}
    return {"object": whole, **{part: whole.get(part) or {} for part in ("status", "spec", "metadata")}}


def _holds(condition: Expr, scope: Mapping[str, Any], say: Say) -> bool:
    """A field that does not exist yet makes it false. So does any other error, since the object may still change; that is logged."""
    try:
        found = evaluate(condition, scope)
    except EvaluationError as error:
        if not str(error).startswith("there is no field"):
            say(f"{condition.text}: {error}")
        return False
    if not isinstance(found, bool):
        say(f"{condition.text}: {found!r} is neither true nor false")
    return found is True


def _why(status: Any) -> str:
    """The message of the object's own conditions."""
    if not isinstance(status, Mapping):
        return ""
    told = [
        one
        for one in status.get("conditions") or []
        if isinstance(one, Mapping) and one.get("message") and _is_bad(one)
    ]
    spark = status.get("applicationState")
    message = told[-1]["message"] if told else status.get("message")
    if not message and isinstance(spark, Mapping):
        message = spark.get("errorMessage")
    return f" ({message})" if message else ""


def _is_bad(condition: Mapping[str, Any]) -> bool:
    """What holds; of Tekton's and Kubernetes' `Succeeded` and `Progressing`, what does not."""
    return (condition.get("status") == "True") != (
        condition.get("type") in ("Succeeded", "Progressing", "Available", "Ready")
    )
