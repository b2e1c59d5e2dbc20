"""Answers a shell that completes a command line: which words could come here. Called by main, before anything else is loaded.

The shell gives the line up to the cursor in _PENSTOCK_LINE. The answer has one word on each line, with what it is behind a tab; `:files`
and `:folders` ask the shell for its own. click knows the commands and options; the names come from service.completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click
from click.shell_completion import ShellComplete, _resolve_context, _resolve_incomplete

from penstock.service import completion
from penstock.service.completion import Offer
from penstock.settings import read

FILES: Offer = (":files", "")
FOLDERS: Offer = (":folders", "")


def answer(line: str, cli: click.Group, commands: Mapping[str, str]) -> str:
    """`commands`: each with its line in the help."""
    words = split(line)
    args, word = words[1:-1], words[-1] if len(words) > 1 else ""
    try:
        found = [one for one in offers(args, word, cli, commands) if one[0].startswith((":", word))]
    except Exception:  # a key press is no place for a message
        found = []
    return "".join(f"{value}\t{help}\n" for value, help in [(f":word={word}", ""), *found])


def split(line: str) -> list[str]:
    """As a shell does, with a last word that is not finished: it may be empty, or have a quotation mark without its other half."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    letters = iter(line)
    for letter in letters:
        if quote:
            if letter == quote:
                quote = ""
            else:
                word = (word or "") + letter
        elif letter in "'\"":
            quote, word = letter, word or ""
        elif letter == "\\":
            word = (word or "") + next(letters, "")
        elif letter.isspace():
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + letter
    return [*words, word or ""]


def offers(args: list[str], word: str, cli: click.Group, commands: Mapping[str, str]) -> Iterable[Offer]:
    if not args and not word.startswith("-"):
        return list(commands.items())
    if args and not args[0].startswith("-") and args[0] not in commands:
        return []
    context = _resolve_context(cli, {}, "penstock", list(args))
    found, _ = _resolve_incomplete(context, list(args), word)
    if isinstance(found, click.Parameter):
        special = _values(found, args, word)
        if special is not None:
            return special
    shell = ShellComplete(cli, {}, "penstock", "_PENSTOCK_COMPLETE")
    return [(item.value, item.help or "") for item in shell.get_completions(list(args), word) if item.type == "plain"]


def _values(param: click.Parameter, args: list[str], word: str) -> Iterable[Offer] | None:
    """Words for this argument or option; None if click knows them, as for a choice."""
    name, metavar = param.name or "", param.metavar or ""
    if "RUN" in metavar or name in ("before", "after"):
        found = _runs(word, "STEP" in metavar)
        return [*found, FILES] if name in ("before", "after") else found
    if name == "given":
        return _given(args, word)
    if name in ("file", "files"):
        return completion.in_file(word) if ".py:" in word else [FILES]
    if name in ("params", "queues", "out"):
        return [FILES]
    if name == "where":
        return [("json", "as JSON"), FOLDERS]
    if name == "queue":
        return completion.queues(read())
    if name == "workflow":
        return completion.workflows(read())
    if name == "unit":
        return [(one, "") for one in ("workflow", "stage", "task", "reuse")]
    return completion.codes() if name == "code" else None


def _runs(word: str, with_steps: bool) -> list[Offer]:
    run, slash, _ = word.partition("/")
    if slash and with_steps:
        return completion.steps(read(), run)
    found = completion.runs(read())
    if with_steps and any(run == word for run, _ in found):  # the name is whole: its steps may follow
        found.append((f"{word}/", "a step of it"))
    return found


def _given(args: list[str], word: str) -> list[Offer]:
    if "=@" in word or word.startswith("@"):
        return [FILES]
    # click has not read the arguments: the option that is being typed lacks its value.
    return [] if "=" in word else next(filter(None, map(completion.parameters, args[1:])), [])
