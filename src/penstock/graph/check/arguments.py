"""The rules of the values that a run is given. Called by plan and by every runner before anything starts."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import Problem, nearest
from penstock.expressions import types
from penstock.graph.check.scalars import brief
from penstock.graph.model import Parameter


def check_arguments(params: tuple[Parameter, ...], given: Mapping[str, object]) -> list[Problem]:
    """Do these values fit these parameters?"""
    known = {param.name: param for param in params}
    problems = []
    for name, value in given.items():
        where = f"params.{name}"
        if name not in known:
            fix = f"known: {', '.join(known) or 'none'}.{nearest(name, known)}"
            problems.append(Problem("P401", f"the workflow has no parameter {name!r}", fix, where=where))
        elif not types.accepts(known[name].type, value):
            message, fix = (
                f"{name}={brief(value)} is not {known[name].type}",
                f"give a value of type {known[name].type}",
            )
            problems.append(Problem("P402", message, fix, where=where))
        elif known[name].choices and value not in known[name].choices:
            fix = f"choose one of {', '.join(map(str, known[name].choices))}"
            problems.append(Problem("P402", f"{name}={brief(value)} is not among the choices", fix, where=where))
    return problems
