"""What completes a word of a command line: names of runs, steps, queues, parameters; and the scripts for shells. Called by cli.completion.

A key press waits for this. It imports little, reads little, and says nothing about errors: a shell shows nothing then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import Problem, UserError
from penstock.service import stores
from penstock.settings import Settings

SHELLS = ("bash", "zsh", "fish")
MOST = 100
"""Runs that are offered: the newest."""
DEEPEST = 4
"""Called workflows whose steps are offered."""
LARGEST = 300_000
"""Bytes of a file that is looked into."""
Offer = tuple[str, str]
"""A word, and what it is."""


def runs(settings: Settings) -> list[Offer]:
    if not stores.exists(settings):
        return []
    with stores.open_existing(settings) as store:
        found = store.runs.newest(limit=MOST)
    return ([("@", "the last run")] if found else []) + [(run.id, run.state) for run in found]


def steps(settings: Settings, run: str) -> list[Offer]:
    """`finetune-3/train`; raises NotFound if there is no such run."""
    if not stores.exists(settings):
        return []
    import json

    from penstock.service.run_records import find

    with stores.open_existing(settings) as store:
        record = find(store, run)
        document = json.loads(store.runs.document(record.digest))
    inner = {one["name"]: one for one in document.get("definitions", ())}
    return [(f"{run}/{path}", kind) for path, kind in _paths(document, inner, "", 0)]


def _paths(workflow: Mapping[str, Any], inner: Mapping[str, Any], prefix: str, depth: int) -> Iterable[Offer]:
    """From the document itself: making a graph of it would take longer than a key press may."""
    for step in (*workflow.get("steps", ()), *workflow.get("on_exit", ())):
        yield prefix + step["name"], "a step"
        called = inner.get(str((step.get("workflow") or {}).get("name")))
        if called is not None and depth < DEEPEST:
            yield from _paths(called, inner, f"{prefix}{step['name']}/", depth + 1)


def workflows(settings: Settings) -> list[Offer]:
    if not stores.exists(settings):
        return []
    with stores.open_existing(settings) as store:
        names = dict.fromkeys(run.workflow for run in store.runs.newest(limit=MOST))
    return [(name, "") for name in names]


def queues(settings: Settings) -> list[Offer]:
    if not stores.exists(settings):
        return []
    with stores.open_existing(settings) as store:
        objects = store.queues.queue_objects()
    return [(name, kind) for kind, name, _, text in objects if kind == "LocalQueue" and text is not None]


def codes() -> list[Offer]:
    from penstock.errors import catalogue

    return [(code, entry["title"]) for code, entry in catalogue().items()]


def parameters(target: str) -> list[Offer]:
    """`rows=` for each parameter of the workflow in a file, from its text: nothing is imported or run."""
    path, name = _split(target)
    if path is None:
        return []
    if path.suffix == ".py":
        found = [one for own, names in _functions(path).items() if not name or own == name for one in names]
    else:
        found = _declared(path)
    return [(f"{one}=", "a parameter") for one in dict.fromkeys(found)]


def in_file(target: str) -> list[Offer]:
    """`flow.py:` -> `flow.py:train`, for each workflow in a Python file."""
    path, _ = _split(target)
    if path is None or path.suffix != ".py":
        return []
    return [(f"{path}:{name}", "a workflow") for name in _functions(path)]


def _split(target: str) -> tuple[Path | None, str]:
    file, _, name = target.partition(":") if not Path(target).exists() else (target, "", "")
    path = Path(file)
    return (path if path.is_file() and path.stat().st_size <= LARGEST else None), name


def _functions(path: Path) -> dict[str, list[str]]:
    """The @workflow functions of a file, with their parameters."""
    import ast

    found: dict[str, list[str]] = {}
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and any("workflow" in ast.unparse(one) for one in node.decorator_list):
            found[node.name] = [arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)]
    return found


def _declared(path: Path) -> list[str]:
    """Of a document: `params`, `spec.params` (Tekton), `spec.arguments.parameters` (Argo)."""
    from penstock.graph.text import read_all_yaml

    found: list[str] = []
    for document, _ in read_all_yaml(path.read_text(), str(path)):
        spec = document.get("spec") if isinstance(document, dict) else None
        spec = spec if isinstance(spec, dict) else {}
        inner = spec.get("arguments")
        for declared in (
            document.get("params") if isinstance(document, dict) else None,
            spec.get("params"),
            inner.get("parameters") if isinstance(inner, dict) else None,
        ):
            if isinstance(declared, dict):
                found += [str(name) for name in declared]
            elif isinstance(declared, list):
                found += [str(one["name"]) for one in declared if isinstance(one, dict) and "name" in one]
    return found


# -- the scripts ------------------------------------------------------------------------------------------------------


def shell_of(given: str | None) -> str:
    """The shell that was named, or the user's. Raises UserError."""
    shell = given or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        fix = f"name one: penstock completion {'|'.join(SHELLS)}"
        raise UserError(Problem("P583", f"there is no completion for {shell or 'an unknown shell'}", fix))
    return shell


def script(shell: str) -> str:
    return Path(__file__).with_name("shells").joinpath(f"penstock.{shell}").read_text(encoding="utf-8")


def install(shell: str) -> list[str]:
    """Writes the script where the shell finds it, and for bash and zsh a line into the file that the shell reads at its start. Says
    what was done. To do it again changes nothing. Raises UserError."""
    home = Path.home()
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        target, start = config / "fish" / "completions" / "penstock.fish", None
    else:
        data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
        target = data / "penstock" / f"completion.{shell}"
        start = home / ".bashrc" if shell == "bash" else Path(os.environ.get("ZDOTDIR") or home) / ".zshrc"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(script(shell), encoding="utf-8")
        done = [f"wrote {target}"]
        if start is not None:
            line = f'[ -f "{target}" ] && . "{target}"  # completion of penstock'
            text = start.read_text(encoding="utf-8") if start.exists() else ""
            if line not in text.splitlines():
                with open(start, "a", encoding="utf-8") as file:
                    file.write(("" if not text or text.endswith("\n") else "\n") + line + "\n")
                done.append(f"added a line to {start}")
    except OSError as error:
        message = f"{error.filename or target} cannot be written: {error.strerror or error}"
        fix = f"save the script yourself: penstock completion {shell} > FILE"
        raise UserError(Problem("P504", message, fix)) from None
    return done
