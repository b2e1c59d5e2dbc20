"""The rules of a step's cache, locks, mounts and input defaults. Called by check.steps, and by check.workflow for its locks."""

from __future__ import annotations

from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.expressions.types import ANY
from penstock.graph.check.context import Context, ReadScope
from penstock.graph.check.scalars import check_count, check_name, check_word
from penstock.graph.check.values import check_value
from penstock.graph.limits import NAME
from penstock.graph.model import MISSING, MOUNT_SCOPES, Lock, Mount, Step


def check_cache(context: Context, step: Step, scope: ReadScope) -> None:
    check_value(context, step.cache.key, ANY, scope, "cache.key")
    if not step.cache.enabled:
        context.report(
            "P233",
            "the cache has a key and is switched off",
            "remove one of the two",
            scope.at("cache.key"),
            step.source,
        )


def check_locks(context: Context, locks: tuple[Lock, ...], scope: ReadScope) -> None:
    for number, lock in enumerate(locks):
        field = f"locks[{number}]"
        check_count(context, lock.limit, scope.at(f"{field}.limit"), scope.source)
        if not isinstance(lock.name, str | Expr | Template) or not lock.name:
            context.report("P233", "the lock has no name", "give it one", scope.at(f"{field}.name"), scope.source)
        check_value(context, lock.name, ANY, scope, f"{field}.name")


def check_mounts(context: Context, mounts: tuple[Mount, ...], scope: ReadScope) -> None:
    for mount in mounts:
        _check_mount(context, mount, scope, f"mounts.{mount.name}")


def _check_mount(context: Context, mount: Mount, scope: ReadScope, field: str) -> None:
    where = scope.at(field)
    check_name(context, mount.name, NAME, where, scope.source)
    check_word(context, mount.scope, MOUNT_SCOPES, f"{where}.scope", scope.source)
    if not mount.path.startswith("/") or ".." in mount.path.split("/"):
        context.report(
            "P233",
            f"{mount.path[:140]!r} is not where a folder can be found",
            "give an absolute path: /data",
            f"{where}.path",
            scope.source,
        )
    for name in mount.files:
        if not name or name.startswith("/") or ".." in name.split("/"):
            context.report(
                "P233",
                f"{name[:140]!r} is not a file inside the folder",
                "give a relative path: conf/app.ini",
                f"{where}.files",
                scope.source,
            )
    check_value(context, (mount.sub_path, mount.files), ANY, scope, field)


def check_defaults(context: Context, step: Step, scope: ReadScope) -> None:
    """A default is used when a step gave nothing, so it cannot read what steps give."""
    for given in step.inputs:
        if given.default is not MISSING:
            without_steps = ReadScope(scope.where, scope.source, scope.roots - {"steps"}, scope.own)
            check_value(context, given.default, given.type, without_steps, f"inputs.{given.name}.default")
