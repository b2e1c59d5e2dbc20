"""`make fuzz`: every reader of foreign text against hostile bytes, guided by coverage (atheris). Only a UserError is an answer.

python fuzz/readers.py TARGET [SEEDS…] [-max_total_time=60]     TARGET: documents, expressions, gates, states
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["penstock"]):
    from penstock.errors import UserError
    from penstock.expressions.evaluate import EvaluationError, evaluate
    from penstock.expressions.parse import Expr, ExpressionError, reference
    from penstock.formats import registry
    from penstock.formats.argo.language import depends, tags, translate, when
    from penstock.formats.asl.language import jsonata, payload
    from penstock.formats.asl.language.failures import StateFailure
    from penstock.formats.asl.language.scope import Scope
    from penstock.formats.documents import Library, read_text
    from penstock.formats.gates.documents import gate_documents, ungate_documents
    from penstock.formats.tekton import variables
    from penstock.graph.check import errors


def documents(data: bytes) -> None:
    library = _library(data)
    for document in library.documents if library is not None else ():
        if registry.format_of(document):
            try:
                errors(registry.read(library, document).workflow)
                registry.vet([document])
            except UserError:
                continue


def gates(data: bytes) -> None:
    library = _library(data)
    if library is None:
        return
    for unit, by in (("stage", "suspend"), ("task", "pods"), ("workflow", "suspend")):
        try:
            gated = gate_documents(library, unit, by).documents
            again = ungate_documents(Library(tuple(read_text_of(one) for one in gated))).documents
        except UserError:
            continue
        assert again == [dict(one.data) for one in library.documents]


def read_text_of(data: object) -> object:
    from penstock.formats.documents import Document

    return Document(data)  # type: ignore[arg-type]


def _library(data: bytes) -> Library | None:
    try:
        return Library(tuple(read_text(data.decode("utf-8", "replace"), "fuzz.yaml")))
    except UserError:
        return None


def expressions(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for read in (
        lambda: translate.compile_expr(text, lambda path: reference(*path)),
        lambda: when.compile_when(text, lambda tag: reference("params", "x")),
        lambda: depends.compile_depends(text, ["A", "B", "a-b"]),
        lambda: tags.split_tags(text),
        lambda: variables.split_vars(text),
    ):
        try:
            node = read()
            if read.__code__.co_consts and hasattr(node, "__dataclass_fields__") and not hasattr(node, "needs"):
                evaluate(Expr.tree(node), {"params": {"x": "1"}, "steps": {}, "item": {}})  # type: ignore[arg-type]
        except (ExpressionError, EvaluationError):
            continue


def states(data: bytes) -> None:
    """Paths, calls and expressions of state machines, on a little data."""
    text = data.decode("utf-8", "replace")
    given = {"a": [1, {"b": "x"}, [None, True]], "n": 2}
    for evaluated in (
        lambda: payload.value_of(text, given, Scope(), "x.$"),
        lambda: payload.placed(text, given, 1),
        lambda: jsonata.evaluate(f"{{% {text} %}}", {"input": given}, Scope(), "Output"),
    ):
        try:
            evaluated()
        except StateFailure:
            continue


TARGETS: dict[str, Callable[[bytes], None]] = {
    "documents": documents,
    "expressions": expressions,
    "gates": gates,
    "states": states,
}

if __name__ == "__main__":
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target)
    atheris.Fuzz()
