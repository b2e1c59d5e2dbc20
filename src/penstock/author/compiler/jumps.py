"""`break` and `continue` as branches. Called by for_loops and while_loops before they compile a body.

What comes after a jump moves into the branch that does not jump. A `break` also sets a flag that the condition of the loop reads.
"""

from __future__ import annotations

import ast

from penstock.author.compiler.liveness import always_leaves


def jumps(statements: list[ast.stmt], kinds: tuple[type[ast.stmt], ...] = (ast.Break, ast.Continue)) -> bool:
    """Is there a jump of the loop whose body this is? Those of loops inside it are their own."""
    return any(
        isinstance(statement, kinds)
        or (isinstance(statement, ast.If) and (jumps(statement.body, kinds) or jumps(statement.orelse, kinds)))
        or (isinstance(statement, ast.For | ast.While) and jumps(statement.orelse, kinds))
        for statement in statements
    )


def without_jumps(body: list[ast.stmt], stopped: str, skipped: str) -> list[ast.stmt]:
    """The body with branches instead of jumps. `stopped`: the variable that says that the loop was left. `skipped`: a variable for a round
    whose rest is left out although not every way through a branch jumps."""
    done: list[ast.stmt] = []
    for i, statement in enumerate(body):
        if isinstance(statement, ast.Continue):
            return done or [ast.copy_location(ast.Pass(), statement)]
        if isinstance(statement, ast.Break):
            return [*done, _assign(statement, stopped, True)]
        if isinstance(statement, ast.If) and jumps([statement]):
            return [*done, *_branch(statement, body[i + 1 :], stopped, skipped)]
        done.append(statement)
    return done


def _branch(statement: ast.If, rest: list[ast.stmt], stopped: str, skipped: str) -> list[ast.stmt]:
    yes, no = statement.body, statement.orelse
    leaves = (always_leaves(yes), always_leaves(no))
    if not rest or ((leaves[0] or not jumps(yes)) and (leaves[1] or not jumps(no))):
        # The rest belongs to the branch that goes on.
        yes = without_jumps(yes if leaves[0] else [*yes, *rest], stopped, skipped)
        no = without_jumps(no if leaves[1] else [*no, *rest], stopped, skipped)
        if _does_nothing(yes) and not _does_nothing(no):
            test = ast.copy_location(ast.UnaryOp(ast.Not(), statement.test), statement.test)
            return [ast.copy_location(ast.If(test, no, []), statement)]
        return [ast.copy_location(ast.If(statement.test, yes, no), statement)]
    # Some ways through a branch jump and others do not: a flag says whether the rest runs.
    flagged = _Flagged(skipped).visit(ast.If(statement.test, yes, no))
    inner = without_jumps([ast.copy_location(flagged, statement)], stopped, skipped)
    test = ast.UnaryOp(ast.Not(), ast.Name(skipped, ast.Load()))
    after = ast.If(test, without_jumps(rest, stopped, f"{skipped}_"), [])
    return [_assign(statement, skipped, False), *inner, _located(after, statement)]


class _Flagged(ast.NodeTransformer):
    """Sets the flag before each jump of the loop."""

    def __init__(self, flag: str) -> None:
        self._flag = flag

    def visit_If(self, node: ast.If) -> ast.If:
        changed = ast.If(node.test, self._each(node.body), self._each(node.orelse))
        return ast.copy_location(changed, node)

    def _each(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in statements:
            if isinstance(statement, ast.Break | ast.Continue):
                found.append(_assign(statement, self._flag, True))
            found.append(self.visit_If(statement) if isinstance(statement, ast.If) else statement)
        return found


def _does_nothing(statements: list[ast.stmt]) -> bool:
    return all(isinstance(statement, ast.Pass) for statement in statements)


def _assign(where: ast.stmt, name: str, value: bool) -> ast.stmt:
    return _located(ast.Assign([ast.Name(name, ast.Store())], ast.Constant(value)), where)


def _located(statement: ast.stmt, where: ast.stmt) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(statement, where))
