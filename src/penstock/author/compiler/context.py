"""What all parts of one compilation share. Made by compile, given to each part."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.author.compiler.definitions import CalledWorkflows
from penstock.author.compiler.refusals import Refusals
from penstock.author.compiler.scope import ScopeStack
from penstock.author.compiler.source import FunctionSource


class CompileContext:
    """For the function of `source`, compiled to a workflow called `name`. `max_iterations`: the limit of its while loops."""

    def __init__(self, source: FunctionSource, name: str, max_iterations: int = 1000) -> None:
        self.refusals = Refusals(source.file, source.lines)
        self.scopes = ScopeStack(self.refusals, source.globals, source.closure)
        self.definitions = CalledWorkflows(self.refusals, name)
        self.max_iterations = max_iterations
        self._names = {node.id for node in ast.walk(source.definition) if isinstance(node, ast.Name)}
        self._loops = 0

    def snapshot(self) -> Callable[[], None]:
        """What takes back everything that is compiled from now on."""
        scopes, definitions = self.scopes.snapshot(), self.definitions.snapshot()

        def restore() -> None:
            scopes()
            self.definitions.restore(definitions)

        return restore

    @contextmanager
    def own_names(self, *wanted: str) -> Iterator[tuple[str, ...]]:
        """Names for variables of a loop that its author does not see. Loops around it and the function use others."""
        self._loops += 1
        suffix = "" if self._loops == 1 else f"_{self._loops}"
        try:
            yield tuple(self._free(f"{name}{suffix}") for name in wanted)
        finally:
            self._loops -= 1

    def _free(self, name: str) -> str:
        while name in self._names:
            name += "_"
        return name
