"""What the pods of an attempt do, as plain data: their programs, and the files that these are given. Made by work and parts; read by manifest
and attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

MAIN: Final = "main"
INSIDE: Final = "/tmp/penstock"
OUTPUTS: Final = f"{INSIDE}/outputs"
SCRIPT: Final = f"{INSIDE}/script"
PLAN: Final = f"{INSIDE}/plan.json"
"""What the leader of a pod is given."""
LONGEST: Final = 60_000
"""Characters of a text that travels in the pod; all of them together may have three times as many."""
ALWAYS_THERE: Final = frozenset(
    "/ /bin /dev /etc /home /lib /lib64 /opt /proc /root /run /sbin /srv /sys /tmp /usr /usr/bin /usr/lib /usr/local /var /var/lib /var/log /var/run /var/tmp".split()
)
"""Folders of an image that nothing is mounted over."""


@dataclass(frozen=True, slots=True)
class TextFile:
    path: str
    text: str
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or file that a container sees."""

    path: str
    sub_path: str
    """In the pod's scratch folder; of a shared one, in the volume of the home."""
    shared: bool = False
    read_only: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Program:
    """One container of the task's own."""

    name: str = MAIN
    """Of its container."""
    part: str = ""
    """The part of a pod that it runs; empty if the step is one command."""
    image: str
    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    workdir: str = ""
    env: dict[str, str] = field(default_factory=dict)
    secret_env: dict[str, str] = field(default_factory=dict)
    files: list[TextFile] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    sidecar: bool = False


@dataclass(slots=True, kw_only=True)
class Work:
    """What the pods of an attempt do."""

    programs: list[Program]
    """In the order in which they run; sidecars at any place."""
    env: dict[str, str] = field(default_factory=dict)
    secret_env: dict[str, str] = field(default_factory=dict)
    files: list[TextFile] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """These four are for all programs alike."""
    fetch: list[str] = field(default_factory=list)
    """The command of the helper that fetches inputs; empty: there is none."""
    put: list[str] = field(default_factory=list)
    """The same for outputs."""
    leads: bool = False
    """Does the helper for outputs lead the programs? Then they run side by side, and each waits for its word (see lead)."""
    plan: list[TextFile] = field(default_factory=list)
    plan_places: list[Place] = field(default_factory=list)
    """What that helper is given."""
    is_function: bool = False

    @property
    def image(self) -> str:
        return self.programs[0].image

    @property
    def needs_store(self) -> bool:
        return bool(self.fetch or self.put or self.is_function)

    def texts(self) -> Iterator[TextFile]:
        """All files, in an order that stays."""
        yield from self.files
        for program in self.programs:
            yield from program.files
        yield from self.plan

    def all_places(self) -> Iterator[Place]:
        yield from self.places
        for program in self.programs:
            yield from program.places
        yield from self.plan_places

    def secrets(self) -> Iterator[tuple[Program | None, str, str]]:
        """(whose, variable, text) of all variables with a secret, in an order that stays. None: everybody's."""
        yield from ((None, name, self.secret_env[name]) for name in sorted(self.secret_env))
        for program in self.programs:
            yield from ((program, name, program.secret_env[name]) for name in sorted(program.secret_env))
