"""Rules for the callbacks of a workflow. Called by check.workflow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.errors import nearest
from penstock.expressions.parse import Expr, path_of, references
from penstock.expressions.secret import ROOT as SECRETS
from penstock.graph.callback import CALLBACK_ENDS, CALLBACK_METHODS, VERDICTS, AnswerRule, Callback
from penstock.graph.check.context import Context
from penstock.graph.check.paths import computes_with_secret
from penstock.graph.check.scalars import check_name, check_unique, check_word
from penstock.graph.limits import NAME
from penstock.graph.model import Nested, expressions

RUN_FIELDS: Final = ("ended", "error", "id", "started", "state", "user", "workflow")
ANSWER_FIELDS: Final = ("body", "headers", "status")
MOST_ATTEMPTS: Final = 100
LONGEST_TIMEOUT: Final = 30.0
"""Seconds. A courier holds what it has taken for a minute."""
LONGEST_WAIT: Final = 7 * 86400.0
OWN_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "idempotency-key", "penstock-signature"}
)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}\Z", re.A)
_STATUS: Final = re.compile(r"([1-5]xx|[1-5]\d\d(-[1-5]\d\d)?)\Z", re.A)


def check_callbacks(context: Context) -> None:
    callbacks = context.workflow.callbacks
    for step in context.steps.values():
        called = context.definitions.get(step.action.name) if isinstance(step.action, Nested) else None
        if called is not None and called.callbacks:
            fix = "give them to the workflow that is run; or run it by a link"
            message = f"the callbacks of {called.name!r} are not sent when a step calls it"
            context.report("P521", message, fix, f"steps.{step.name}.workflow")
    check_unique(context, [one.name for one in callbacks], "callback", "callbacks", None)
    for one in callbacks:
        where = f"callbacks.{one.name}"
        check_name(context, one.name, NAME, where, None)
        _words(context, one, where)
        _numbers(context, one, where)
        for place, value, roots in _read(one):
            _reads(context, value, roots, f"{where}.{place}", secrets=place.startswith(("headers", "body", "secret")))
        for number, rule in enumerate(one.answers):
            _rule(context, rule, f"{where}.answers[{number}]")


def _wrong(context: Context, message: str, fix: str, where: str) -> None:
    context.report("P521", message, fix, where)


def _words(context: Context, one: Callback, where: str) -> None:
    for end in one.on:
        check_word(context, end, CALLBACK_ENDS, f"{where}.on", None)
    if not one.on:
        _wrong(context, "it is sent on no end of a run", f"name some of {', '.join(CALLBACK_ENDS)}", f"{where}.on")
    check_word(context, one.method, CALLBACK_METHODS, f"{where}.method", None)
    if isinstance(one.url, str):
        wrong = url_problem(one.url)
        if wrong:
            _wrong(context, wrong, "write a URL of the form https://host/path", f"{where}.url")
    for name in one.headers:
        if not _TOKEN.match(name):
            _wrong(
                context, f"{name[:80]!r} is not the name of a header", "use letters, digits and -", f"{where}.headers"
            )
        elif name.lower() in OWN_HEADERS:
            _wrong(context, f"the header {name} is set by Penstock", "leave it out", f"{where}.headers")
    if one.secret is not None and not _is_secret(one.secret):
        fix = "name one: secret: ${{ secrets.NAME }}, or in Python secret=secret('NAME')"
        _wrong(context, "the key of its signature has to be a secret, and nothing else", fix, f"{where}.secret")


def url_problem(url: str) -> str:
    """What is wrong with it; empty if nothing is. What it leads to is for the guard to say."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"{url[:200]!r} is not a URL: {error}"
    if parts.scheme not in ("http", "https") or not host:
        return f"{url[:200]!r} is not a URL of the form http://host/… or https://host/…"
    if parts.username is not None or parts.password is not None:
        return "its URL holds a user name or password, and URLs are recorded: give it as a header with secrets.NAME"
    if any(ord(one) <= 32 or ord(one) == 127 for one in url):
        return f"{url[:200]!r} holds a space or a control character"
    return ""


def _is_secret(value: Any) -> bool:
    path = path_of(value.node) if isinstance(value, Expr) else None
    return path is not None and len(path) == 2 and path[0] == SECRETS


def _numbers(context: Context, one: Callback, where: str) -> None:
    retry = one.retry
    for place, value, low, high in (
        ("timeout", one.timeout, 0.0, LONGEST_TIMEOUT),
        ("retry.attempts", retry.attempts, 0, MOST_ATTEMPTS),
        ("retry.initial", retry.initial, 0.0, LONGEST_WAIT),
        ("retry.longest", retry.longest, 0.0, LONGEST_WAIT),
        ("retry.factor", retry.factor - 1 + 1e-9, 0.0, 1000.0),
    ):
        if not low < value <= high:
            fix = "give 1 to 1000" if place == "retry.factor" else f"give more than 0, at most {high:g}"
            shown = retry.factor if place == "retry.factor" else value
            _wrong(context, f"{place} is {shown:g}", fix, f"{where}.{place}")


def _read(one: Callback) -> Iterator[tuple[str, Any, frozenset[str]]]:
    """(place, value, what it may read)."""
    run = frozenset({"run", "params", "outputs"})
    each = run | {"item"} if one.items is not None else run
    yield "url", one.url, each
    yield "items", one.items, run
    yield "filter", one.filter, each
    yield "body", one.body, each
    yield "secret", one.secret, frozenset()
    for name, value in one.headers.items():
        yield f"headers.{name}", value, each


def _reads(context: Context, value: Any, roots: frozenset[str], where: str, secrets: bool = False) -> None:
    known = {
        "run": RUN_FIELDS,
        "params": tuple(context.params),
        "outputs": tuple(output.name for output in context.workflow.outputs),
        "answer": ANSWER_FIELDS,
    }
    for expr in expressions(value):
        for path in references(expr.text):
            root = path[0]
            if root == SECRETS:
                if not secrets or len(path) != 2 or computes_with_secret(expr.node):
                    fix = "write secrets.NAME as a header, in the body, or as its secret, as it is"
                    context.report("P522", "a secret cannot be read here", fix, where)
            elif root not in roots:
                fix = f"read one of {', '.join(sorted(roots))}.{nearest(root, roots)}"
                context.report("P522", f"{root!r} cannot be read here", fix, where)
            elif len(path) > 1 and root in known and path[1] not in known[root]:
                fix = f"known: {', '.join(known[root]) or 'none'}.{nearest(path[1], known[root])}"
                context.report("P522", f"there is no {root}.{path[1]}", fix, where)


def _rule(context: Context, rule: AnswerRule, where: str) -> None:
    check_word(context, rule.then, VERDICTS, f"{where}.then", None)
    for status in rule.status:
        if not _STATUS.match(str(status)):
            _wrong(context, f"{str(status)[:40]!r} is not a status", "write 404, 5xx or 500-599", f"{where}.status")
    _reads(context, rule.when, frozenset({"answer"}), f"{where}.when")
