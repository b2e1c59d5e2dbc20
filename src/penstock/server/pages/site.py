"""The frame of all pages: templates, static files, signing in and out, errors for people. Called by app and by the other pages.

A page's URL gives the data that it shows as JSON if the request prefers that. What a page changes, it changes by the functions of service that
the API calls, and by forms.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from penstock.errors import Problem, UserError
from penstock.phrases import clean, duration, plural
from penstock.server.access import COOKIE, LIFETIME, AccessGate
from penstock.server.pages.local import local
from penstock.server.problems import TITLES, answer
from penstock.service.tokens import Identity

if TYPE_CHECKING:
    from penstock.server.oidc.provider import Provider

_HERE: Final = Path(__file__).parent.parent
STATIC: Final = _HERE / "static"
SIGNS: Final = {
    "succeeded": "✓",
    "reused": "✓",
    "failed": "✗",
    "errored": "✗",
    "lost": "✗",
    "cancelled": "✗",
    "running": "▶",
    "retrying": "▶",
    "queued": "▷",
    "waiting": "▷",
    "starting": "▷",
    "suspended": "‖",
    "stopped": "‖",
    "stopping": "‖",
}
TONES: Final = {
    "succeeded": "good",
    "reused": "good",
    "failed": "bad",
    "errored": "bad",
    "lost": "bad",
    "cancelled": "warn",
    "running": "busy",
    "retrying": "warn",
    "queued": "wait",
    "waiting": "wait",
    "starting": "wait",
    "suspended": "warn",
    "stopped": "warn",
    "stopping": "warn",
}
"""State → colour. The sign and the word say the same."""
WORDS: Final = {"succeeded": "done", "": "pending"}
PAGES: Final = (
    ("Runs", "/", ("/runs", "/cluster/why"), "viewer"),
    ("Queues", "/queues", ("/queues", "/cluster/queues"), "viewer"),
    ("Flows", "/flows", ("/flows",), "viewer"),
    ("Usage", "/usage", ("/usage",), "viewer"),
    ("Submit", "/submit", ("/submit",), "submitter"),
    ("Convert", "/convert", ("/convert",), "viewer"),
    ("Doctor", "/doctor", ("/doctor",), "operator"),
    ("Audit", "/audit", ("/audit",), "admin"),
)
"""What is at the top of every page: its name, its address, where else one is in it, and the role that sees it."""
router = APIRouter(include_in_schema=False)


def _ago(at: float | None) -> str:
    if at is None:
        return ""
    age = max(0.0, time.time() - at)
    return f"{duration(age)} ago" if age < 86400 * 3 else time.strftime("%Y-%m-%d", time.localtime(at))


def _clock(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _part(path: str) -> str:
    """A part of a URL."""
    return quote(path, safe="")


def printed(text: Any) -> str:
    """Several lines from a user's program, without characters that control a terminal."""
    return "".join(char if char.isprintable() or char in "\n\t " else "·" for char in str(text))


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": _ago,
        "clock": _clock,
        "seconds": duration,
        "plural": plural,
        "part": _part,
        "clean": clean,
        "printed": printed,
    }
    made.globals |= {"signs": SIGNS, "tones": TONES, "words": WORDS, "query": urlencode, "pages": PAGES}
    return made


_templates: Final = _environment()


def wants_json(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def page(request: Request, template: str, data: Mapping[str, Any], command: str = "", status: int = 200) -> Response:
    """`command`: what prints the same in a terminal."""
    if wants_json(request):
        return JSONResponse(dict(data).get("data", dict(data)), status)
    who: Identity | None = getattr(request.state, "who", None)
    gate: AccessGate = request.app.state.gate
    text = _templates.get_template(template).render(
        **data,
        who=who,
        version=request.app.version,
        command=command,
        word=gate.word(who) if who is not None else "",
        here=request.url.path,
    )
    return HTMLResponse(text, status)


def shown(request: Request, status: int, problems: Sequence[Problem]) -> Response | None:
    """An error for people; None if a program asks."""
    if request.url.path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return None
    if status == 401:
        there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?{urlencode({'next': there})}", 303)
    title = TITLES.get(status, "Error")
    return page(request, "error.html", {"title": title, "status": status, "problems": problems}, status=status)


# -- signing in -------------------------------------------------------------------------------------------------------


@router.get("/login")
async def login(request: Request, token: str = "", next: str = "/", left: str = "") -> Response:
    """With a token in the address, as `penstock serve` prints it, one is in at once."""
    if token:
        return await _enter(request, token, next)
    return _form(request, next, left=left == "1", parting=await _parting(request) if left == "1" else "")


def _form(
    request: Request, there: str, problems: Sequence[Problem] = (), left: bool = False, parting: str = ""
) -> Response:
    """`left`: one has just signed out. `parting`: where one signs out of the provider, too."""
    if problems and wants_json(request):
        return answer(401, problems)
    provider: Provider | None = request.app.state.provider
    elsewhere = "" if provider is None else provider.settings.shown
    data = {"next": local(there), "problems": problems, "elsewhere": elsewhere, "left": left, "parting": parting}
    return page(request, "login.html", data, status=401 if problems else 200)


async def _parting(request: Request) -> str:
    provider: Provider | None = request.app.state.provider
    return "" if provider is None else await provider.exit()


@router.post("/login")
async def sign_in(request: Request) -> Response:
    form = await request.form()
    return await _enter(request, str(form.get("token", "")).strip(), str(form.get("next", "/")))


async def _enter(request: Request, token: str, there: str) -> Response:
    gate: AccessGate = request.app.state.gate
    address = request.client.host if request.client else ""
    try:
        if gate.tries.too_many(address):
            return answer(429, [Problem("P941", "too many requests without a good token", "wait a minute")])
        who = await gate.sign_in(token)
    except UserError as error:
        gate.tries.bad(address)
        return _form(request, there, error.problems)
    response = RedirectResponse(local(there), 303)
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, gate.cookie(who), max_age=int(LIFETIME), httponly=True, samesite="lax", secure=secure)
    return response
