"""What pods, folders, locks and keys of a step have to satisfy. Called by check, which builds on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.errors import nearest
from penstock.graph.expr import Expr
from penstock.graph.model import MISSING, MOUNT_SCOPES, PART_ON_ERROR, Input, Lock, Mount, Part, Pod, Step
from penstock.graph.order import NotOrdered, topological
from penstock.graph.places import NAME, Place
from penstock.graph.reach import Reach
from penstock.graph.template import Template
from penstock.graph.types import ANY

OPERATORS: Final = ("in", "notin")


class Details(Reach):
    def details(self, step: Step, around: Place, inside: Place) -> None:
        """Of one step, which has such."""
        if step.cache.key is not None:
            self.value(step.cache.key, ANY, inside, "cache.key")
            if not step.cache.enabled:
                self.report(
                    "P233",
                    "the cache has a key and is switched off",
                    "remove one of the two",
                    f"{inside.where}.cache.key",
                    step.source,
                )
        self.locks(step.locks, inside, f"{inside.where}.")
        for mount in step.mounts:
            self.mount(mount, inside)
        for given in step.inputs:
            if given.default is not MISSING:
                self.stand_in(given, around)
        if isinstance(step.action, Pod):
            self.pod(step.action, inside)

    def stand_in(self, given: Input, place: Place) -> None:
        """What is used when a step gave nothing cannot itself hang on what steps give."""
        known = Place(place.where, place.source, place.roots - {"steps"}, place.own, place.exit)
        self.value(given.default, given.type, known, f"inputs.{given.name}.default")

    def locks(self, locks: tuple[Lock, ...], place: Place, prefix: str) -> None:
        for number, lock in enumerate(locks):
            where = f"locks[{number}]"
            self.count(lock.limit, f"{prefix}{where}.limit", place.source)
            if not isinstance(lock.name, str | Expr | Template) or not lock.name:
                self.report("P233", "the lock has no name", "give it one", f"{prefix}{where}.name", place.source)
            self.value(lock.name, ANY, place, f"{where}.name")

    def mount(self, mount: Mount, place: Place) -> None:
        what = f"mounts.{mount.name}"
        where = f"{place.where}.{what}"
        self.name(mount.name, NAME, where, place.source)
        self.word(mount.scope, MOUNT_SCOPES, f"{where}.scope", place.source)
        if not mount.path.startswith("/") or ".." in mount.path.split("/"):
            self.report(
                "P233",
                f"{mount.path[:140]!r} is not where a folder can be found",
                "give an absolute path: /data",
                f"{where}.path",
                place.source,
            )
        for name in mount.files:
            if not name or name.startswith("/") or ".." in name.split("/"):
                self.report(
                    "P233",
                    f"{name[:140]!r} is not a file inside the folder",
                    "give a relative path: conf/app.ini",
                    f"{where}.files",
                    place.source,
                )
        self.value((mount.sub_path, mount.files), ANY, place, what)

    # -- the parts of a pod -------------------------------------------------------------------------------------------

    def pod(self, pod: Pod, place: Place) -> None:
        where = f"{place.where}.pod.parts"
        if not pod.parts:
            self.report("P233", "the pod has no parts", "give it one", where, place.source)
        known = {part.name: part for part in pod.parts}
        if len(known) < len(pod.parts):
            names = [part.name for part in pod.parts]
            twice = next(name for name in names if names.count(name) > 1)
            self.report("P210", f"two parts are named {twice!r}", "rename one", f"{where}.{twice}", place.source)
        for part in pod.parts:
            self.part(part, known, f"{where}.{part.name}", place)
        if len(known) < len(pod.parts):
            return
        waits = {name: {up for up in ups if up in known} for name, ups in before(pod.parts).items()}
        try:
            topological(waits)
        except NotOrdered as cycle:
            path = " → ".join([*cycle.names, cycle.names[0]])
            self.report(
                "P212", f"these parts wait for one another: {path}", "remove one of the needs", where, place.source
            )

    def part(self, part: Part, known: Mapping[str, Part], where: str, place: Place) -> None:
        self.name(part.name, NAME, where, place.source)
        self.word(part.on_error, PART_ON_ERROR, f"{where}.on_error", place.source)
        self.seconds(part.timeout, f"{where}.timeout", place.source)
        if part.image in (None, "") and not part.command and part.source is None:
            self.report("P233", "the part does nothing", "give it an image, a command or a source", where, place.source)
        for name in part.needs or ():
            if name not in known:
                self.report(
                    "P233",
                    f"the pod has no part {name!r}",
                    f"name another.{nearest(name, known)}",
                    f"{where}.needs",
                    place.source,
                )
            elif known[name].sidecar:
                self.report(
                    "P222",
                    f"the part waits for the sidecar {name!r}, which ends last",
                    "remove the need",
                    f"{where}.needs",
                    place.source,
                )
        for test in part.when:
            operator = test.get("operator")
            if set(test) != {"input", "operator", "values"} or not isinstance(operator, str):
                self.report(
                    "P233",
                    "the condition is not complete",
                    "write {input: …, operator: in, values: […]}",
                    f"{where}.when",
                    place.source,
                )
            else:
                self.word(operator, OPERATORS, f"{where}.when", place.source)


def before(parts: tuple[Part, ...]) -> dict[str, tuple[str, ...]]:
    """Part -> the parts that it waits for, said or the one before it. Sidecars run beside, and wait for nothing."""
    found: dict[str, tuple[str, ...]] = {}
    last: tuple[str, ...] = ()
    for part in parts:
        if part.sidecar:
            found[part.name] = ()
            continue
        found[part.name] = last if part.needs is None else part.needs
        last = (part.name,)
    return found
