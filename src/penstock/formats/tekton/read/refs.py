"""Resolves references of Tekton documents, and finds which results a pipeline reads. Called by pipeline and workflow."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import nearest
from penstock.expressions.parse import Expr, Node, references
from penstock.expressions.types import STR, Type
from penstock.formats.tekton.read.scope import STRINGS, KnownText, Located, Lookup, legal, understood
from penstock.formats.tekton.read.task_scope import TektonContext
from penstock.formats.tekton.variables import Var, split_vars, texts_in
from penstock.graph.model import Input, Step, expressions, step_values


def find(
    context: TektonContext, ref: Located, kinds: tuple[str, ...], lookup: Lookup
) -> tuple[Located | None, str, str]:
    """The document of a taskRef or pipelineRef, its name, and the reason if it is missing."""
    what = kinds[0]
    resolver = ref.word("resolver")
    params = {param.name(): understood(param.word("value"), lookup).fixed for param in ref.maps("params") if resolver}
    name = understood(ref.word("name"), lookup).fixed
    if resolver == "cluster" and str(params.get("kind", "")).lower() in ("", what.lower()):
        name = params.get("name", name)
    elif resolver or ref.given("bundle"):
        how = f"the resolver {resolver!r}" if resolver else "a bundle"
        why = f"its {what} is fetched by {how}"
        context.report.lost(ref.path, why, f"put the {what} beside the document and name it", ref.source)
        return None, str(params.get("name") or name or ""), why
    if not isinstance(name, str) or not name:
        if not isinstance(name, str):
            why = f"the name of its {what} is known only when it runs"
            context.report.lost(ref.path, why, "write the name out", ref.source)
            return None, ref.word("name"), why
        raise ref.error("P835", f"{ref.path} names no {what}", "give it a name")
    for kind in kinds:
        found = context.library.find(kind, name)
        if found is not None:
            return Located.root(found), name, ""
    known = [document.name for kind in kinds for document in context.library.of_kind(kind)]
    why = f"there is no {what} {name!r} among the documents"
    near = nearest(name, known).strip() or f"put the {what} into the file or beside it"
    context.report.lost(ref.path, why, near, ref.source)
    return None, name, why


def results_read(spec: Located) -> dict[str, dict[str, Var]]:
    """Task -> result -> how it is read anywhere in the pipeline."""
    found: dict[str, dict[str, Var]] = {}
    for text in texts_in(spec.data):
        for part in split_vars(text) if "results" in text else ():
            match part:
                case Var(path=("tasks" | "finally", task, "results", result, *_)):
                    found.setdefault(task, {}).setdefault(result, part)
    return found


def guessed(read: Mapping[str, Var]) -> dict[str, Type]:
    """The results of a missing task, as the pipeline reads them."""
    found: dict[str, Type] = {}
    for result, var in read.items():
        if var.star or var.index is not None:
            found[result] = STRINGS
        else:
            found[result] = Type("dict", (STR,)) if len(var.path) > 4 else STR
    return found


def steps_read(step: Step, nodes: list[Node]) -> dict[str, set[str]]:
    """Step -> its outputs that are read."""
    found: dict[str, set[str]] = {}
    paths = paths_read(step)
    paths += [path for node in nodes for path in references(Expr.tree(node).text)]
    for path in paths:
        if len(path) > 3 and path[0] == "steps" and path[2] == "outputs":
            found.setdefault(path[1], set()).add(path[3])
    return found


def paths_read(step: Step) -> list[tuple[str, ...]]:
    return [path for _, value in step_values(step) for one in expressions(value) for path in references(one.text)]


def plain_inputs(given: Mapping[str, KnownText]) -> tuple[Input, ...]:
    found: dict[str, Input] = {}
    for name, known in given.items():
        if not any(path[0] == "attempt" for one in expressions(known.value) for path in references(one.text)):
            own = legal(name, found, variable=True)
            found[own] = Input(name=own, value=known.value, type=known.type)
    return tuple(found.values())
