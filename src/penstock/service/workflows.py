"""A FILE argument -> a workflow, whatever language the file is in; and its drawing. Called by the commands, `plans`, `conversion`
and `simulation`.

A target is a path, or the name of a module (`pkg.flow`), or either with `:name` for one of several workflows in a file.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidWorkflow, NotFound, PlanError, Problem, UserError, nearest
from penstock.graph.limits import NAME
from penstock.graph.model import Nested, Step, Unit, Workflow

if TYPE_CHECKING:
    from penstock.formats.report import Entry, Report


def load(target: str) -> Workflow:
    """`flow.py`, `flow.py:train`, `flow.yaml`, `argo.yaml`, a folder of manifests -> Workflow, not checked yet. Raises UserError."""
    return load_with_report(target)[0]


def load_with_report(target: str) -> tuple[Workflow, Report | None]:
    """Also reports what was kept, changed and lost, if the workflow was written for another system. Raises UserError."""
    path, name = existing(target)
    workflow, report = _loaded(path, name)
    return with_files_beside(workflow, path), report


def _loaded(path: Path, name: str | None) -> tuple[Workflow, Report | None]:
    if path.is_dir():
        return _from_manifests(path, name)
    if path.suffix == ".py":
        from penstock.author.load import load_graph

        return load_graph(path, name), None
    from penstock.service.manifests import DOCUMENTS, is_foreign, is_penstock, read_document

    if path.suffix not in DOCUMENTS:
        fix = f"use a file that ends in .py, {', '.join(DOCUMENTS)}"
        raise UserError(Problem("P502", f"{str(path)!r} is neither Python nor YAML nor JSON", fix))

    text = read_document(path)
    if not is_penstock(text) and is_foreign(text, str(path)):
        return _from_manifests(path, name)
    from penstock.graph.codec import from_text

    workflow = from_text(text, str(path))
    if name is not None and name != workflow.name:
        raise NotFound(Problem("P303", f"there is no workflow {name!r} in {path}", f"known: {workflow.name}"))
    return workflow, None


def with_files_beside(workflow: Workflow, path: Path) -> Workflow:
    """The workflow with what its links name but nobody defines, as it is now in files of these names beside its own: `publish.yaml`, `publish.py`.
    Raises UserError if one of them is wrong, or called otherwise."""
    looked: set[str] = set()
    while missing := sorted(_linked(workflow) - {one.name for one in (workflow, *workflow.definitions)} - looked):
        from penstock.graph.chains import TwoOfOneName, gathered

        looked |= set(missing)
        beside = [
            path.with_name(name + suffix)
            for name in filter(NAME.match, missing)
            for suffix in (".yaml", ".yml", ".json", ".py")
        ]
        found = [_loaded(file, None)[0] for file in beside if file.is_file() and file != path]
        try:
            workflow = dataclasses.replace(workflow, definitions=gathered((*workflow.definitions, *found)))
        except TwoOfOneName as error:
            message = f"two different workflows of the chain are called {error.args[0]!r}"
            raise PlanError(Problem("P541", message, "give one of them another name", source=workflow.source)) from None
    return workflow


def _linked(workflow: Workflow) -> set[str]:
    return {link.workflow for one in (workflow, *workflow.definitions) for link in one.links}


def _from_manifests(path: Path, name: str | None) -> tuple[Workflow, Report]:
    from penstock.service.manifests import load as load_manifest

    found = load_manifest(path, name)
    return found.workflow, found.report


def existing(target: str) -> tuple[Path, str | None]:
    """The path and the workflow's name, if one was given. Raises NotFound if there is no such file."""
    path, name = _split(target)
    if not path.exists():
        found = _module_file(str(path))
        if found is not None:
            return found, name
        raise NotFound(Problem("P501", f"there is no file {str(path)!r}", f"check the path.{_neighbour(path)}"))
    return path, name


def of_module(name: str) -> str:
    """The target for a module: `pkg.flow` or `pkg.flow:train`. Raises NotFound."""
    module, colon, workflow = name.partition(":")
    file = _module_file(module)
    if file is None:
        raise NotFound(Problem("P501", f"there is no module {module!r} here", "name it as python -m does: pkg.flow"))
    return f"{file}{colon}{workflow}"


def _module_file(name: str) -> Path | None:
    """`pkg.flow` -> pkg/flow.py, as `python -m` finds it from here."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    path = Path(*parts)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def unknown_fields(target: str) -> list[Entry]:
    """What the owning project would reject in a manifest: above all fields that it does not know."""
    path, _ = _split(target)
    if path.is_dir() or not _has_manifests(path):
        return []
    from penstock.service import manifests

    return manifests.unknown_fields(path)


def refused(target: str) -> list[Problem]:
    """What the API server of a cluster would refuse of a manifest: a missing or wrong name, wrong labels. Raises UserError."""
    path, name = _split(target)
    if not _has_manifests(path):
        return []
    from penstock.service import manifests

    return manifests.refused(path, name)


def targets_in(target: str) -> list[str]:
    """A target for each workflow in a file or folder of manifests, if there are several and none was named."""
    path, name = _split(target)
    if name is not None or not _has_manifests(path):
        return [target]
    from penstock.service import manifests

    found = manifests.names_in(path)
    return [f"{target}:{one}" for one in found] if len(set(found)) == len(found) > 1 else [target]


def _has_manifests(path: Path) -> bool:
    """A folder, or a document that is not Penstock's own."""
    if path.suffix == ".py" or not path.exists():
        return False
    from penstock.service.manifests import DOCUMENTS, is_penstock, read_document

    return path.is_dir() or (path.suffix in DOCUMENTS and not is_penstock(read_document(path)))


def draw(target: str, to: str) -> str:
    """The workflow as SVG or text (`to`: svg, mermaid, dot or tree). Raises InvalidWorkflow."""
    from penstock.graph.check import errors

    workflow = load(target)
    problems = errors(workflow)
    if problems:
        raise InvalidWorkflow(problems)
    if to == "svg":
        from penstock.drawing.svg import svg

        return svg(workflow)
    from penstock.drawing import text

    return {"mermaid": text.mermaid, "dot": text.dot, "tree": text.tree}[to](workflow)


def override(
    workflow: Workflow, queue: str | None, priority: str | int | None = None, unit: str | None = None
) -> Workflow:
    """The workflow with the queue, priority and unit that were chosen for a run; None keeps its own. Workflows that follow by links get the same,
    and without a queue or priority of their own those of the first. Raises PlanError."""
    changes: dict[str, Any] = {}
    if queue is not None:
        changes["queue"] = queue
    if priority is not None:
        changes["priority"] = priority_from(priority)
    if unit is not None:
        changes["unit"] = unit_from(unit)
    workflow = dataclasses.replace(workflow, **changes) if changes else workflow
    linked = _linked(workflow)
    if not linked:
        return workflow

    def following(one: Workflow) -> Workflow:
        own = {
            "queue": one.queue or workflow.queue,
            "priority": workflow.priority if one.priority is None else one.priority,
        }
        return dataclasses.replace(one, **{**own, **changes}) if one.name in linked else one

    return dataclasses.replace(workflow, definitions=tuple(map(following, workflow.definitions)))


def unit_from(text: str) -> Unit:
    """Raises PlanError."""
    if text not in list(Unit):
        fix = f"use one of {', '.join(Unit)}.{nearest(text, Unit)}"
        raise PlanError(Problem("P404", f"{text!r} is not a unit", fix))
    return Unit(text)


def priority_from(given: str | int) -> str | int:
    """A number, or the name of a priority class."""
    text = str(given)
    return int(text) if text.removeprefix("-").isdecimal() else text


def step_at(workflow: Workflow, path: str) -> Step | None:
    """`call/train` -> the step `train` of the workflow that `call` calls."""
    level = workflow
    definitions = {definition.name: definition for definition in workflow.definitions}
    step = None
    for name in path.split("/"):
        step = next((one for one in (*level.steps, *level.on_exit) if one.name == name), None)
        if step is None:
            return None
        if isinstance(step.action, Nested):
            level = definitions[step.action.name]
    return step


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
