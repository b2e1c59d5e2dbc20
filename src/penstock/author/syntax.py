"""Python that has no meaning in a workflow, and what to write instead. Called by compiler and lower for every refusal."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from penstock.errors import AuthorError, Problem, Source

INSTEAD: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: (
        "try/except",
        "handle the exception inside a @task, or use retry=; in the object form, .after(job, outcomes=['failed'])",
    ),
    ast.With: ("with", "use the context manager inside a @task"),
    ast.AsyncWith: ("async with", "use the context manager inside a @task"),
    ast.AsyncFor: ("async for", "write a plain for; independent tasks run side by side anyway"),
    ast.Await: ("await", "call the task without await; independent tasks run side by side anyway"),
    ast.Yield: ("yield", "return a list from a @task and loop over it"),
    ast.YieldFrom: ("yield from", "return a list from a @task and loop over it"),
    ast.FunctionDef: ("a function inside a workflow", "define it at the top of the file, with @task or @workflow"),
    ast.AsyncFunctionDef: ("a function inside a workflow", "define it at the top of the file, with @task or @workflow"),
    ast.ClassDef: ("a class inside a workflow", "define it at the top of the file"),
    ast.Lambda: ("lambda", "define a @task at the top of the file"),
    ast.Global: ("global", "pass the value as an argument"),
    ast.Nonlocal: ("nonlocal", "pass the value as an argument"),
    ast.Import: ("import inside a workflow", "import at the top of the file, or inside a @task"),
    ast.ImportFrom: ("import inside a workflow", "import at the top of the file, or inside a @task"),
    ast.Delete: ("del", "leave the name alone"),
    ast.Assert: ("assert", "check inside a @task and raise there"),
    ast.Raise: ("raise", "raise inside a @task"),
    ast.Match: ("match", "write if/elif/else"),
    ast.Break: ("break", "put it into the condition of the while loop"),
    ast.Continue: ("continue", "put the rest of the loop's body under an if"),
    ast.Set: ("a set", "write a list"),
    ast.SetComp: ("a set comprehension", "write a list comprehension"),
    ast.DictComp: ("a dict comprehension", "write a list comprehension, or build the dict inside a @task"),
    ast.GeneratorExp: ("a generator expression", "write a list comprehension: [ … ]"),
    ast.NamedExpr: (":=", "assign on a line of its own"),
    ast.Starred: ("*", "pass each argument by name"),
    ast.Slice: ("a slice of a value", "slice inside a @task"),
}


class Refuser:
    """Makes errors that point into one function's source."""

    def __init__(self, file: str, lines: dict[int, str]) -> None:
        self.file = file
        self.lines = lines

    def source(self, node: ast.AST) -> Source:
        return Source(self.file, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)

    def error(self, code: str, node: ast.AST, message: str, fix: str) -> AuthorError:
        source = self.source(node)
        return AuthorError(
            Problem(code, message, fix, source=source, excerpt=self.lines.get(source.line, "").rstrip("\n"))
        )

    def refused(self, node: ast.AST) -> AuthorError:
        what, instead = INSTEAD.get(type(node), (f"{type(node).__name__.lower()}", "move it into a @task"))
        return self.error("P311", node, f"{what} has no meaning in a workflow", instead)


def names_read(nodes: Iterable[ast.AST]) -> set[str]:
    """Names whose value is looked up; the variables of a comprehension are its own."""
    found: set[str] = set()
    for node in nodes:
        _read(node, frozenset(), found)
    return found


def _read(node: ast.AST, own: frozenset[str], found: set[str]) -> None:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in own:
            found.add(node.id)
        return
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        for generator in node.generators:
            _read(generator.iter, own, found)
            own = own | {child.id for child in ast.walk(generator.target) if isinstance(child, ast.Name)}
            for test in generator.ifs:
                _read(test, own, found)
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for element in elements:
            _read(element, own, found)
        return
    for child in ast.iter_child_nodes(node):
        _read(child, own, found)


def live_before(statements: list[ast.stmt], after: set[str]) -> set[str]:
    """Names whose value matters before these statements, given those that matter after them."""
    read, bound = _flow(statements, set())
    return read | (after - bound)


def names_assigned(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that these statements bind in their own scope; variables of comprehensions are not."""
    found: set[str] = set()
    for node in nodes:
        for child in _outside_comprehensions(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                found.add(child.id)
    return found


def names_bound(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that these statements assign, or whose list they append to."""
    nodes = list(nodes)
    return names_assigned(nodes) | {
        name for node in nodes for child in ast.walk(node) if (name := append_target(child))
    }


def append_target(statement: ast.AST) -> str:
    match statement:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(attr="append", value=ast.Name(id=name)), args=[_], keywords=[])
        ):
            return name
        case _:
            return ""


def _outside_comprehensions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda):
        return
    for child in ast.iter_child_nodes(node):
        yield from _outside_comprehensions(child)


def read_before_assigned(statements: Iterable[ast.stmt]) -> set[str]:
    """Names whose value on entry matters: read, somewhere, before these statements have surely bound them."""
    read, _ = _flow(list(statements), set())
    return read


def _flow(statements: list[ast.stmt], bound: set[str]) -> tuple[set[str], set[str]]:
    read: set[str] = set()
    bound = set(bound)
    for statement in statements:
        if isinstance(statement, ast.If):
            read |= names_read([statement.test]) - bound
            read_yes, bound_yes = _flow(statement.body, bound)
            read_no, bound_no = _flow(statement.orelse, bound)
            read |= read_yes | read_no
            bound = bound_yes & bound_no
        elif isinstance(statement, ast.For | ast.While):
            head = [statement.iter] if isinstance(statement, ast.For) else [statement.test]
            read |= names_read(head) - bound
            inner = bound | (names_assigned([statement.target]) if isinstance(statement, ast.For) else set())
            read |= _flow(statement.body, inner)[0] | _flow(statement.orelse, bound)[0]
        else:
            read |= names_read([statement]) - bound
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                read |= {statement.target.id} - bound
            bound |= names_assigned([statement])
    return read, bound


def always_returns(statements: list[ast.stmt]) -> bool:
    for statement in statements:
        if isinstance(statement, ast.Return):
            return True
        if (
            isinstance(statement, ast.If)
            and statement.orelse
            and always_returns(statement.body)
            and always_returns(statement.orelse)
        ):
            return True
    return False


def has_return(statements: Iterable[ast.stmt]) -> ast.Return | None:
    return next(
        (child for statement in statements for child in ast.walk(statement) if isinstance(child, ast.Return)), None
    )
