"""Which names statements read and bind. Called by statements, for_loops, while_loops and compile.

A value that a branch or a loop changes, and that is read later, has to leave it: as a choice, a list or a carried value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def names_read(nodes: Iterable[ast.AST]) -> set[str]:
    """Names whose value is looked up, without the variables of comprehensions."""
    found: set[str] = set()
    for node in nodes:
        _read(node, frozenset(), found)
    return found


def _read(node: ast.AST, own: frozenset[str], found: set[str]) -> None:
    """`own`: the variables of the comprehensions around the node."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in own:
            found.add(node.id)
        return
    if isinstance(node, _COMPREHENSIONS):
        for generator in node.generators:
            _read(generator.iter, own, found)
            own = own | {child.id for child in ast.walk(generator.target) if isinstance(child, ast.Name)}
            for test in generator.ifs:
                _read(test, own, found)
        for element in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            _read(element, own, found)
        return
    for child in ast.iter_child_nodes(node):
        _read(child, own, found)


def names_assigned(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that these statements assign, without the variables of comprehensions."""
    found: set[str] = set()
    for node in nodes:
        for child in _outside_comprehensions(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                found.add(child.id)
    return found


def _outside_comprehensions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if isinstance(node, (*_COMPREHENSIONS, ast.Lambda)):
        return
    for child in ast.iter_child_nodes(node):
        yield from _outside_comprehensions(child)


def append_target(statement: ast.AST) -> str:
    """`name` in `name.append(item)`; "" for any other statement."""
    match statement:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(attr="append", value=ast.Name(id=name)), args=[_], keywords=[])
        ):
            return name
        case _:
            return ""


def item_target(statement: ast.AST) -> str:
    """`name` in `name[key] = value` and `name[key] += value`; "" for any other statement."""
    match statement:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name))]):
            return name
        case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name))):
            return name
        case _:
            return ""


def changes(statements: Iterable[ast.stmt]) -> list[str]:
    """The lists and dicts that these statements append to or put items into, once for each time."""
    return [
        name
        for statement in statements
        for node in ast.walk(statement)
        if (name := append_target(node) or item_target(node))
    ]


def names_bound(statements: list[ast.stmt]) -> set[str]:
    """Names that these statements assign, or whose list or dict they change."""
    return names_assigned(statements) | set(changes(statements))


def live_before(statements: list[ast.stmt], after: set[str]) -> set[str]:
    """Names whose value is read after this point. `after`: those whose value is read after the statements."""
    read, bound = _flow(statements, set())
    return read | (after - bound)


def read_before_assigned(statements: list[ast.stmt]) -> set[str]:
    """Names that are read on some path before these statements have bound them."""
    read, _ = _flow(statements, set())
    return read


def _flow(statements: list[ast.stmt], bound: set[str]) -> tuple[set[str], set[str]]:
    """(names read before they are bound, names bound on every path). `bound`: the names bound before the statements."""
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


def always_leaves(statements: list[ast.stmt]) -> bool:
    """Does every way through these statements end in a jump of the loop around them?"""
    return any(
        isinstance(statement, ast.Break | ast.Continue)
        or (isinstance(statement, ast.If) and always_leaves(statement.body) and always_leaves(statement.orelse))
        for statement in statements
    )


def always_returns(statements: list[ast.stmt]) -> bool:
    return any(
        isinstance(statement, ast.Return)
        or (isinstance(statement, ast.If) and always_returns(statement.body) and always_returns(statement.orelse))
        for statement in statements
    )


def has_return(statement: ast.stmt) -> bool:
    return any(isinstance(child, ast.Return) for child in ast.walk(statement))
