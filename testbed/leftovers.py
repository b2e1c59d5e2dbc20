"""What testbed instances left on the machine whose keeper is gone: processes, mounts, cgroups. Asked by tests; the real node sweeps at its start.

An instance is known by its temporary folder, which its processes carry in their arguments, working folder or environment, and by the cgroup
of its real node, which is named after the keeper: its process id and its time of start. So an instance that still runs is never taken for
a left-over, whoever started it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.keeper import cgroup_folders, remove_cgroup

if TYPE_CHECKING:
    from testbed.instance import Testbed

PREFIX = "penstock-testbed-"
_CGROUP = re.compile(rf"{PREFIX}(\d+)-(\d+)")
_FOLDER = re.compile(rf"/[^\s\0,:]*?/{PREFIX}[a-z0-9_]{{8}}(?![\w.-])")  # as tempfile.mkdtemp makes it


def cgroup_name(keeper: int) -> str:
    return f"{PREFIX}{keeper}-{_started(keeper)}"


def _started(pid: int) -> int | None:
    """When a process began, in the kernel's ticks; with its id it names a process for good. None when it is gone or only its shell is left."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_bytes().decode(errors="replace")
    return ""


def _marks(process: Path) -> set[str]:
    """The instances a process belongs to: folders and cgroups."""
    texts = [_read(process / name) for name in ("cmdline", "environ")]
    with contextlib.suppress(OSError):
        texts.append(str((process / "cwd").readlink()))
    folders = {match for text in texts for match in _FOLDER.findall(text)}
    return folders | {match[0] for match in _CGROUP.finditer(_read(process / "cgroup"))}


def _processes() -> Iterator[tuple[Path, list[str], set[str]]]:
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _started(int(process.name)) is not None:
            yield process, _read(process / "cmdline").split("\0"), _marks(process)


def _alive(cgroup: str) -> bool:
    found = _CGROUP.fullmatch(cgroup)
    return found is not None and _started(int(found[1])) == int(found[2])


def _cgroups() -> set[str]:
    tops = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/")]
    return {folder.name for top in tops for folder in top.glob(f"{PREFIX}*/") if _CGROUP.fullmatch(folder.name)}


def leftovers(bed: Testbed | None = None) -> list[str]:
    """One line for each thing that no living instance owns, of one instance or of all; empty on a clean machine."""
    processes = list(_processes())
    keepers = {argv[-2] for _, argv, _ in processes if len(argv) > 2 and argv[-3].endswith("/testbed/keeper.py")}

    def stale(mark: str) -> bool:
        if bed and mark != str(bed.dir) and not mark.startswith(f"{PREFIX}{bed.keeper}-"):
            return False
        return mark not in keepers if mark.startswith("/") else not _alive(mark)

    found = []
    for process, argv, marks in processes:
        if marks and all(map(stale, marks)):
            found.append(f"process {process.name}: {' '.join(argv)[:200]}")
    for line in _read(Path("/proc/mounts")).splitlines():
        if any(map(stale, _FOLDER.findall(line))):
            found.append(f"mount {line.split()[1]}")
    for name in sorted(_cgroups()):
        if stale(name):
            found += [f"cgroup {folder}" for folder in cgroup_folders(name)]
    return found


def sweep() -> None:
    """Removes the cgroups of nodes whose keeper is gone. Their processes and mounts went with their namespaces."""
    for name in _cgroups():
        if not _alive(name):
            remove_cgroup(name)
