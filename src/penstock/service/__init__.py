"""The verbs. Called by the CLI, and later by the server and the controller: each translates and calls one of these.

The only module that turns a FILE argument into a workflow, whatever language the file is in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import NotFound, PlanError, Problem, UserError, catalogue, nearest
from penstock.graph import types
from penstock.graph.model import Parameter, Unit, Workflow

if TYPE_CHECKING:
    from penstock.formats.report import Entry, Report
    from penstock.plan.diff import PlanDiff
    from penstock.plan.make import Plan
    from penstock.plan.merge import Merged
    from penstock.service.forecast import Forecast
    from penstock.service.foreign import Conversion
    from penstock.service.outlook import Outlook

DOCUMENTS = (".yaml", ".yml", ".json")
DRAWINGS = ("mermaid", "dot", "tree", "svg")
TARGETS = ("argo", "tekton", "jobset", "job", "penstock", "python", "mermaid", "dot")


def load(target: str) -> Workflow:
    """`flow.py`, `flow.py:train`, `flow.yaml`, `argo.yaml`, a folder of manifests -> Workflow, not checked yet. Raises UserError."""
    return load_with_report(target)[0]


def load_with_report(target: str) -> tuple[Workflow, Report | None]:
    """Also what was kept, changed and lost, if the workflow was written for another system. Raises UserError."""
    path, name = _existing(target)
    if path.is_dir():
        return _foreign(path, name)
    if path.suffix == ".py":
        from penstock.author.load import load_graph

        return load_graph(path, name), None
    if path.suffix not in DOCUMENTS:
        raise UserError(
            Problem(
                "P502",
                f"{str(path)!r} is neither Python nor YAML nor JSON",
                f"use a file that ends in .py, {', '.join(DOCUMENTS)}",
            )
        )
    from penstock.service.foreign import is_ours, text_of

    text = text_of(path)
    if not is_ours(text) and "apiVersion" in text:
        return _foreign(path, name)
    from penstock.graph.codec import from_text

    workflow = from_text(text, str(path))
    if name is not None and name != workflow.name:
        raise NotFound(Problem("P303", f"there is no workflow {name!r} in {path}", f"known: {workflow.name}"))
    return workflow, None


def _foreign(path: Path, name: str | None) -> tuple[Workflow, Report]:
    from penstock.service.foreign import load as load_foreign

    found = load_foreign(path, name)
    return found.workflow, found.report


def _existing(target: str) -> tuple[Path, str | None]:
    path, name = _split(target)
    if not path.exists():
        raise NotFound(Problem("P501", f"there is no file {str(path)!r}", f"check the path.{_neighbour(path)}"))
    return path, name


def misspelt(target: str) -> list[Entry]:
    """What the project of a manifest would not take of it: fields that it does not know, above all."""
    path, _ = _split(target)
    if not path.is_file() or path.suffix not in DOCUMENTS:
        return []
    from penstock.service import foreign

    return [] if foreign.is_ours(foreign.text_of(path)) else foreign.misspelt(path)


def workflows_in(target: str) -> list[str]:
    """Every workflow of a file or folder of manifests as a target of its own, if it has several and none was named."""
    path, name = _split(target)
    if name is not None or path.suffix == ".py" or not (path.is_dir() or path.suffix in DOCUMENTS) or not path.exists():
        return [target]
    from penstock.service import foreign

    if not path.is_dir() and foreign.is_ours(foreign.text_of(path)):
        return [target]
    found = foreign.names_in(path)
    return [f"{target}:{one}" for one in found] if len(set(found)) == len(found) > 1 else [target]


def convert(target: str, to: str) -> Conversion:
    """A workflow, or a file or folder of manifests, in another format. Raises UserError for what cannot be said there at all."""
    from penstock.service import foreign

    if to not in TARGETS:
        raise UserError(
            Problem("P838", f"{to!r} is not a format", f"use one of {', '.join(TARGETS)}.{nearest(to, TARGETS)}")
        )
    path, name = _existing(target)
    ours = path.suffix not in DOCUMENTS or foreign.is_ours(foreign.text_of(path))
    return foreign.write(load(target), to) if ours and not path.is_dir() else foreign.convert(path, name, to)


def gate(target: str, unit: str, by: str) -> Conversion:
    """Manifests that wait in a queue before each of their stages. Raises UserError."""
    from penstock.service import foreign

    return foreign.gate(_existing(target)[0], unit, by)


def ungate(target: str) -> Conversion:
    """What `gate` did, taken back. Raises UserError."""
    from penstock.service import foreign

    return foreign.ungate(_existing(target)[0])


def _split(target: str) -> tuple[Path, str | None]:
    if Path(target).exists() or ":" not in target:
        return Path(target), None
    file, _, name = target.rpartition(":")
    return Path(file), name


def _neighbour(path: Path) -> str:
    try:
        return nearest(path.name, (entry.name for entry in path.parent.iterdir()))
    except OSError:
        return ""


def parameters(workflow: Workflow, given: Iterable[str]) -> dict[str, Any]:
    """`key=value` as typed on a command line -> values of the parameters' types. Raises PlanError."""
    known = {param.name: param for param in workflow.params}
    found: dict[str, Any] = {}
    problems = []
    for item in given:
        name, equals, text = item.partition("=")
        if not equals:
            problems.append(Problem("P403", f"-p {item}: there is no '='", "write -p name=value"))
        elif name not in known:
            problems.append(
                Problem(
                    "P401",
                    f"the workflow has no parameter {name!r}",
                    f"known: {', '.join(known) or 'none'}.{nearest(name, known)}",
                )
            )
        else:
            value = _typed(known[name], text)
            if value is _WRONG:
                example = {"int": "3", "float": "0.1", "bool": "true", "list": "'[1, 2]'", "dict": "'{\"a\": 1}'"}.get(
                    known[name].type.name, "value"
                )
                problems.append(
                    Problem(
                        "P402",
                        f"{name}={text[:80]!r} is not {known[name].type}",
                        f"write for example -p {name}={example}",
                    )
                )
            found[name] = value
    if problems:
        raise PlanError(problems)
    return found


_WRONG = object()


def _no_constant(name: str) -> Any:
    """NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(name)


def _typed(param: Parameter, text: str) -> Any:
    """Text parameters take the text as it is; others are JSON. Untyped ones are JSON if they look like it."""
    if param.type.name in ("str", "file", "dir"):
        return text
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        value = text
    if types.accepts(param.type, value):
        return value
    return text if types.accepts(param.type, text) else _WRONG


def plan(
    target: str,
    given: Sequence[str] = (),
    unit: str | None = None,
    queue: str | None = None,
    priority: str | None = None,
) -> Plan:
    from penstock.plan.make import make, uninterrupted

    with uninterrupted():
        workflow = load(target)
    if queue is not None or priority is not None:
        from penstock.service.queueing import chosen

        workflow = chosen(workflow, queue, priority, None)
    if unit is not None and unit not in list(Unit):
        raise PlanError(
            Problem("P404", f"{unit!r} is not a unit", f"use one of {', '.join(Unit)}.{nearest(unit, Unit)}")
        )
    return make(workflow, parameters(workflow, given), unit)


def expectations(found: Plan) -> Forecast | None:
    """What a run of this plan would reuse, share or run now. None if nothing was ever run here, or a parameter is missing."""
    from penstock.settings import read

    settings = read()
    if any(param.name not in found.params for param in found.workflow.params):
        return None
    if settings.store == str(settings.home) and not (settings.home / "state.db").exists():
        return None
    from penstock.service.forecast import forecast
    from penstock.store.sql import open_store

    with open_store(settings.store) as store:
        return forecast(found, store, settings)


def prospects(found: Plan, queues: str | None = None) -> dict[str, Outlook]:
    """What each reservation would meet in its queue now. `queues`: a file that a run would apply before."""
    if not found.reservations:
        return {}
    from penstock.service.outlook import outlook
    from penstock.settings import read

    settings = read()
    if settings.store == str(settings.home) and not (settings.home / "state.db").exists():
        return outlook(found, None, queues)
    from penstock.store.sql import open_store

    with open_store(settings.store) as store:
        return outlook(found, store, queues)


def draw(target: str, to: str) -> str:
    """The workflow as a picture or as text. Raises InvalidWorkflow."""
    from penstock.errors import InvalidWorkflow
    from penstock.graph.check import errors

    workflow = load(target)
    problems = errors(workflow)
    if problems:
        raise InvalidWorkflow(problems)
    if to == "svg":
        from penstock.formats.svg import svg

        return svg(workflow)
    from penstock.formats import draw

    return {"mermaid": draw.mermaid, "dot": draw.dot, "tree": draw.tree}[to](workflow)


def merge(targets: Sequence[str], given: Sequence[str] = (), name: str | None = None) -> Merged:
    """Each parameter goes to every workflow that has it, and must fit one of them at least."""
    from penstock.plan.merge import merge as merge_workflows

    workflows = [load(target) for target in targets]
    everywhere = {param.name for workflow in workflows for param in workflow.params}
    unknown = [item for item in given if item.partition("=")[0] not in everywhere]
    if unknown:
        wrong = unknown[0].partition("=")[0]
        raise PlanError(
            Problem(
                "P401",
                f"none of the workflows has a parameter {wrong!r}",
                f"known: {', '.join(sorted(everywhere)) or 'none'}.{nearest(wrong, everywhere)}",
            )
        )
    bound = []
    for workflow in workflows:
        own = {param.name for param in workflow.params}
        bound.append((workflow, parameters(workflow, [item for item in given if item.partition("=")[0] in own])))
    return merge_workflows(bound, name)


def diff(before: str, after: str, given: Sequence[str] = ()) -> PlanDiff:
    from penstock.plan.diff import diff as diff_plans
    from penstock.plan.make import make

    plans = []
    for target in (before, after):
        workflow = load(target)
        own = {param.name for param in workflow.params}
        plans.append(make(workflow, parameters(workflow, [item for item in given if item.partition("=")[0] in own])))
    return diff_plans(*plans)


def shown_outputs(text: str | None) -> dict[str, Any]:
    """The outputs of a run as they are shown: what is kept as a blob is named, not opened."""
    from penstock.artifacts.values import loads
    from penstock.graph.stored import Stored

    def shown(value: Any) -> Any:
        if isinstance(value, Stored):
            return f"<{value.kind} of {value.size:,} bytes, {value.digest[:19]}>"
        if isinstance(value, list):
            return [shown(item) for item in value]
        if isinstance(value, dict):
            return {key: shown(item) for key, item in value.items()}
        return value

    return {} if text is None else {name: shown(value) for name, value in loads(text).items()}


def error_codes() -> Mapping[str, Mapping[str, str]]:
    """The whole catalogue of error codes."""
    return catalogue()


def explain_code(code: str) -> Mapping[str, str]:
    """The catalogue's entry for an error code. Raises NotFound."""
    known = catalogue()
    wanted = code.strip().upper()
    if wanted not in known:
        raise NotFound(
            Problem(
                "P503",
                f"there is no error code {code!r}",
                f"`penstock explain` lists them all.{nearest(wanted, known)}",
            )
        )
    return known[wanted]
