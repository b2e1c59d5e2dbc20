"""How a state fails: an error name that Retry and Catch compare, and a cause for people. Raised by every part of the language."""

from __future__ import annotations

from typing import Any, Final

RUNTIME: Final = "States.Runtime"
QUERY: Final = "States.QueryEvaluationError"
INTRINSIC: Final = "States.IntrinsicFailure"
TIMEOUT: Final = "States.Timeout"
NO_CHOICE: Final = "States.NoChoiceMatched"
ALL: Final = "States.ALL"
TASK_FAILED: Final = "States.TaskFailed"
TOLERANCE: Final = "States.ExceedToleratedFailureThreshold"
ITEM_READER: Final = "States.ItemReaderFailed"


class StateFailure(Exception):
    """A state, or a machine, has failed. `error` and `cause` may be absent: a Fail state need not give any."""

    def __init__(self, error: str | None, cause: Any = None, where: str = "") -> None:
        super().__init__(f"{error}: {cause}" if cause else f"{error}")
        self.error = error
        self.cause = cause
        self.where = where
        """The field that was evaluated, as a path inside the state."""

    def as_data(self) -> dict[str, Any]:
        """What Catch puts into the data."""
        return {"Error": self.error, "Cause": self.cause}


class MalformedText(ValueError):
    """A path, an intrinsic call or an expression that cannot be read. check reports it before anything runs."""


class NoMatch(Exception):
    """A path that can only meet one place meets nothing. The message says where it ends."""
