"""Answers to steps that wait for one. For everybody: the token in the path is all that is asked for. Taken in by app, at the top, so that the
addresses that are given away stay as they are when the API has another version.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from penstock.errors import Problem
from penstock.server import models
from penstock.server.access import note
from penstock.server.api.common import errors, settings_of, threads_of
from penstock.server.guard import Tries
from penstock.server.problems import RequestRefused
from penstock.service import answers, intake
from penstock.service.answers import Answered, AnswerGiven
from penstock.store.sql import Store

router = APIRouter(tags=["callbacks"])
LARGEST: Final = 2**20
"""Bytes of an answer."""
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": models.AnswerBody.model_json_schema()}},
    }
}
Token = Annotated[str, Path(max_length=answers.LONGEST_TOKEN, description="As the step was given it")]


@router.post(
    "/callbacks/{token}",
    response_model=models.TakenAnswer,
    responses=errors(404, 409, 410, 413, 422),
    openapi_extra=_BODY,
)
async def answer(request: Request, token: Token) -> Any:
    """Answers a step that waits: success with the step's outputs, failure with the name of an error, or heartbeat, which says that somebody is
    still at it. 409: it is answered already; 410: nobody waits for it any more; 422: the outputs do not fit, and it goes on waiting. The token
    in the address is what gives the right to; nothing else is asked for."""
    given = _read(await _body(request))
    said = AnswerGiven(status=given.status, outputs=given.outputs, error=given.error, message=given.message)
    settings = settings_of(request)

    def do(store: Store) -> Answered | None:
        if store.answers.find(token) is None:
            return None
        return answers.answer(
            store,
            token,
            said,
            time.time(),
            lambda workflow, row, values: intake.given_outputs(workflow, settings, row, values),
        )

    found = await threads_of(request).call(do)
    if found is None:
        _count(request)
        raise answers.unknown()
    if given.status != "heartbeat":
        request.app.state.nudge()
        await note(request, "answer", f"{found.run.id}/{found.task}", 200)
    return {"status": given.status}


def _count(request: Request) -> None:
    """Raises RequestRefused: too many guesses. Who has a good token is not kept out, whatever others do from the same address."""
    guesses: Tries = request.app.state.guesses
    address = request.client.host if request.client else ""
    if guesses.too_many(address):
        raise RequestRefused(429, Problem("P941", "too many requests without a good token", "wait a minute"))
    guesses.bad(address)


async def _body(request: Request) -> bytes:
    """Raises RequestRefused."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > LARGEST:
            fix = "put what is large elsewhere, and answer with where it is"
            raise RequestRefused(413, Problem("P940", f"more than {LARGEST // 2**20} MiB in an answer", fix))
    return bytes(found)


def _read(body: bytes) -> models.AnswerBody:
    """Raises RequestValidationError."""
    try:
        return models.AnswerBody.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from None
