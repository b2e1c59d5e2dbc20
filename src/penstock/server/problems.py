"""Errors as RFC 9457 says: `application/problem+json`, with our codes and fixes. Called by app for every error of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from starlette.responses import JSONResponse

from penstock.errors import NotFound, Problem, StoreError, UserError
from penstock.service.answers import AnswerRefused, AnswerTooLate
from penstock.service.run_records import RunConflict
from penstock.service.tokens import NotAllowed, NotSignedIn

TYPE: Final = "application/problem+json"
_STATUS: Final[tuple[tuple[type[UserError], int], ...]] = (
    (NotSignedIn, 401),
    (NotAllowed, 403),
    (NotFound, 404),
    (RunConflict, 409),
    (AnswerTooLate, 410),
    (AnswerRefused, 422),
    (StoreError, 503),
)
TITLES: Final = {
    400: "The request is wrong",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible here",
    408: "It took too long",
    409: "Not possible now",
    410: "Gone",
    412: "It has changed",
    413: "Too large",
    421: "Not a name of this server",
    422: "The request is wrong",
    424: "What it is about has failed",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available now",
}


class RequestRefused(UserError):
    """A request that is refused with a status of its own."""

    def __init__(self, status: int, problem: Problem) -> None:
        self.status = status
        super().__init__(problem)


def status_of(error: UserError) -> int:
    if isinstance(error, RequestRefused):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 400)


def data_of(status: int, problems: Sequence[Problem]) -> dict[str, Any]:
    """The first problem is the answer's own; all are under `problems`."""
    first = problems[0]
    return {
        "type": f"urn:penstock:error:{first.code}",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": first.message,
        "code": first.code,
        "fix": first.fix,
        "problems": [one.as_data() | ({"excerpt": one.excerpt} if one.excerpt else {}) for one in problems],
    }


def answer(status: int, problems: Sequence[Problem], kind: str | None = None) -> JSONResponse:
    """`kind`: its type, if a standard has a name for it."""
    headers = {"WWW-Authenticate": 'Bearer realm="penstock"'} if status == 401 else {}
    if status in (429, 503):
        headers["Retry-After"] = "2"
    data = data_of(status, problems)
    return JSONResponse(data if kind is None else data | {"type": kind}, status, headers, media_type=TYPE)
