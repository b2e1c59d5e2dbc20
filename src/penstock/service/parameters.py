"""Parameters of a workflow as given on a command line or in Python, checked against what the author's function declares. Called by the
commands, by `plans`, `submission`, the runners and `simulation`."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.artifacts.plain import brief, plain
from penstock.artifacts.rebuild import Build, Misfit, build_of
from penstock.artifacts.values import dumps
from penstock.errors import PlanError, Problem, nearest
from penstock.expressions import types
from penstock.graph.model import Parameter, Workflow

_EXAMPLES = {"int": "3", "float": "0.1", "bool": "true", "list": "'[1, 2]'", "dict": "'{\"a\": 1}'"}
_WRONG = object()
_LARGEST = 50_000_000
"""Characters of a file that is the value of a parameter. It is recorded with the run."""
_BARE = re.compile(r'(?<!["\w.-])[A-Za-z_][\w.-]*(?!["\w.-])')
_SIMPLE = frozenset({int, float, str, bool, type(None)})
_TEXT: Any = object()
"""The value is still text."""


class Given(NamedTuple):
    """One parameter as it was given."""

    name: str
    text: str
    """Of the command line: `3`, or `@rows.json` for what that file has."""
    value: Any = _TEXT
    """Of a file of parameters: plain data."""
    where: str = "-p "


def read(given: Iterable[str | Given]) -> list[Given]:
    """`key=value`, and `@FILE` for a file of parameters (`--params FILE`); what comes later counts. What has no `=` has no name.
    Raises PlanError."""
    found: list[Given] = []
    for item in given:
        if isinstance(item, Given):
            found.append(item)
        elif item.startswith("@"):
            found += [Given(name, "", value, f"{item[1:]}: ") for name, value in _file_of(item[1:]).items()]
        else:
            name, equals, text = item.partition("=")
            found.append(Given(name, text) if equals else Given("", item))
    return found


def parse(workflow: Workflow, given: Iterable[str | Given]) -> dict[str, Any]:
    """What was given -> values of the types that the parameters have. Raises PlanError with every problem."""
    known = {param.name: param for param in workflow.params}
    builds = _builds(workflow)
    found: dict[str, Any] = {}
    problems = []
    for item in read(given):
        name = item.name
        if not name:
            problems.append(Problem("P403", f"-p {item.text}: there is no '='", "write -p name=value"))
        elif name not in known:
            place = "" if item.value is _TEXT else item.where
            problems.append(unknown(name, known, f"{place}the workflow has no parameter"))
        else:
            said = _said(known[name], item)
            value = _value(known[name], item, said)
            if name in builds:
                first = value
                if value is _WRONG:
                    first = _json(said) if isinstance(said, str) else said
                value, problem = _fitted(name, builds[name], [first, said])
                problems += [_as_json(one, known[name], said) for one in problem]
            elif value is _WRONG:
                type_ = known[name].type
                fix = _quoted(name, said) or f"write for example -p {name}={_EXAMPLES.get(type_.name, 'value')}"
                shown = repr(item.text[:80]) if item.value is _TEXT else repr(item.value)[:80]
                problems.append(Problem("P402", f"{name}={shown} is not {type_}", fix))
            found[name] = value
    if problems:
        raise PlanError(problems)
    return found


def from_python(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """What Python code gives -> plain data. A member of an Enum, a date or a dataclass may be given as such. Raises PlanError with every
    problem."""
    builds = _builds(workflow)
    found: dict[str, Any] = {}
    problems = []
    for name, value in given.items():
        found[name] = value
        if type(value) in _SIMPLE and name not in builds:
            continue
        found[name] = value = plain(value)
        try:
            dumps(value)
        except (TypeError, ValueError):
            message = f"{name}={brief(value)} cannot be recorded as a parameter"
            fix = "give text, numbers, true/false, lists, dicts, dates, paths, or a class with fields; make anything else in a task"
            problems.append(Problem("P402", message, fix, where=f"params.{name}"))
            continue
        if name in builds:
            found[name], problem = _fitted(name, builds[name], [value])
            problems += problem
    if problems:
        raise PlanError(problems)
    return found


def _builds(workflow: Workflow) -> dict[str, Build]:
    """Parameter -> what makes of its value what the @workflow function declares, where that is more than plain data."""
    from penstock.author.capture import declared

    return {name: build for name, hint in declared(workflow).items() if (build := build_of(hint)) is not None}


def _fitted(name: str, build: Build, candidates: Sequence[Any]) -> tuple[Any, list[Problem]]:
    """The first that fits, in the form that steps pass on."""
    wrong: Misfit | None = None
    for value in candidates:
        try:
            made = build(value)
        except Misfit as error:
            wrong = wrong or error
        except Exception as error:  # a class of the author may reject its own fields
            wrong = wrong or Misfit(value, "accepted", f"{type(error).__name__}: {error}")
        else:
            return _passed_on(value, made), []
    assert wrong is not None
    return None, [Problem("P402", f"{name} is {wrong}", wrong.fix, where=f"params.{name}")]


def _as_json(problem: Problem, param: Parameter, said: Any) -> Problem:
    """The problem of a text of the command line, with what to write there."""
    example = _EXAMPLES.get(param.type.name, "") if problem.fix in ("give a list", "give a dict") else ""
    if not isinstance(said, str) or not (example or said.startswith(("[", "{"))):
        return problem
    fix = _quoted(param.name, said) or (f"write for example -p {param.name}={example}" if example else problem.fix)
    return dataclasses.replace(problem, fix=fix)


def _quoted(name: str, said: Any) -> str:
    """What to write for a list or map whose texts have no quotes; empty if that is not what is wrong."""
    if not isinstance(said, str) or not said.startswith(("[", "{")) or not isinstance(_json(said), str):
        return ""
    text = _BARE.sub(lambda found: found[0] if found[0] in ("true", "false", "null") else f'"{found[0]}"', said)
    return "" if isinstance(_json(text), str) else f"write JSON, with quotes around texts: -p {name}='{text}'"


def _passed_on(value: Any, made: Any) -> Any:
    """As steps pass it on. A map that is given for a class stays as it is: the class fills in its defaults where it is used."""
    if isinstance(value, dict):
        is_map = isinstance(made, Mapping) and len(made) == len(value)
        return (
            {key: _passed_on(value[key], one) for key, one in zip(value, made.values(), strict=True)}
            if is_map
            else value
        )
    if (
        isinstance(value, list)
        and isinstance(made, list | tuple)
        and len(made) == len(value)
        and not hasattr(made, "_fields")
    ):
        return [_passed_on(one, of) for one, of in zip(value, made, strict=True)]
    return plain(made)


def untracked(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Problem]:
    """Text that names a file: warnings by parameter."""
    found = {}
    for param in workflow.params:
        value = given.get(param.name)
        if not isinstance(value, str) or param.type not in (types.STR, types.ANY, types.optional(types.STR)):
            continue
        if len(value) < 4096 and "\0" not in value and os.path.isfile(value):
            message = f"{param.name}={value!r} is text that names a file: its content is not tracked, and a change of it is not seen"
            fix = f"declare it as a path: {param.name}: Path   (in YAML: type: file)"
            where = f"params.{param.name}"
            found[param.name] = Problem("P414", message, fix, where=where, source=workflow.source, severity="warning")
    return found


def parse_shared(workflows: Sequence[Workflow], given: Sequence[str]) -> list[dict[str, Any]]:
    """One list for several workflows: each parameter goes to every workflow that has it. Raises PlanError if none has it."""
    check_known(workflows, given)
    return [parse(workflow, own_of(workflow, given)) for workflow in workflows]


def check_known(workflows: Sequence[Workflow], given: Iterable[str]) -> None:
    """Raises PlanError if a parameter is given that none of the workflows has."""
    everywhere = {param.name for workflow in workflows for param in workflow.params}
    for item in read(given):
        if item.name and item.name not in everywhere:
            raise PlanError(unknown(item.name, everywhere, "none of the workflows has a parameter"))


def own_of(workflow: Workflow, given: Iterable[str]) -> list[Given]:
    """Those that name a parameter of this workflow, and those that are malformed, which `parse` reports."""
    own = {param.name for param in workflow.params}
    return [item for item in read(given) if not item.name or item.name in own]


def unknown(name: str, known: Collection[str], message: str) -> Problem:
    return Problem("P401", f"{message} {name!r}", f"known: {', '.join(sorted(known)) or 'none'}.{nearest(name, known)}")


def _said(param: Parameter, item: Given) -> Any:
    """The text, or the plain data, that was given: on the command line, or in a file that is named there."""
    text = item.text
    if item.value is not _TEXT:
        return item.value
    if text.startswith("@@") or (text.startswith("@") and param.type.name in ("file", "dir")):
        return text[1:]  # a file as a whole: its path
    if not text.startswith("@"):
        return text
    content = _content(text[1:], f"-p {item.name}={text}")
    if param.type.name != "str" and text.endswith((".yaml", ".yml")):
        content = json.dumps(_yaml(content, text[1:]))
    return content.removesuffix("\n")


def _value(param: Parameter, item: Given, said: Any) -> Any:
    if item.value is _TEXT:
        return _typed(param, said)
    if types.accepts(param.type, said):
        return said
    return _typed(param, said if isinstance(said, str) else json.dumps(said))


def _file_of(path: str) -> dict[str, Any]:
    """A file of parameters: a map of YAML or JSON. Raises PlanError."""
    found = _yaml(_content(path, f"--params {path}"), path)
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        fix = "write one parameter on each line, as in rows: 100"
        raise PlanError(Problem("P485", f"--params {path}: the file is not a map of names to values", fix))
    return found


def _content(path: str, said: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LARGEST + 1)
        if len(text) <= _LARGEST:
            return text
        why = f"it is larger than {_LARGEST:,} characters"
    except (OSError, UnicodeDecodeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text"
    fix = "check the path; a text that begins with @ is given as @@text; large data is given as a file (data: Path)"
    raise PlanError(Problem("P485", f"{said}: {path!r} cannot be read: {why}", fix))


def _yaml(text: str, path: str) -> Any:
    from penstock.graph.text import read_json, read_yaml

    # JSON is nearly YAML, but not quite: letters outside of the first plane are escaped in two halves.
    return (read_json if path.endswith(".json") else read_yaml)(text, path)[0]


def _typed(param: Parameter, text: str) -> Any:
    """A text parameter takes the text unchanged, and so does one of a class that is text between steps. Others are JSON; an untyped one is JSON if it parses as JSON."""
    if param.type.name in ("str", "file", "dir", "object"):
        return text
    value = _json(text)
    if types.accepts(param.type, value):
        return value
    return text if types.accepts(param.type, text) else _WRONG


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    """Python reads NaN and Infinity; JSON does not have them."""
    raise ValueError(name)
