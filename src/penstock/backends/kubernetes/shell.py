"""The shell around a program, where there must be something around it: to copy what it left, to keep what it prints, to wait for its turn. Made
by packing and parts. Pure. It needs sh of the image, and of its tools only those that the lines name.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from typing import Final

from penstock.backends.kubernetes.programs import INSIDE

PIPES: Final = f"{INSIDE}/pod"
"""The folder that the parts of a pod and their leader share (see lead)."""
SHELLS: Final = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh"})

Copies = Sequence[tuple[str, str]]
"""(path in the container, place in the scratch folder)"""


def has_shell(command: Sequence[str]) -> bool:
    """Is the program a shell itself, so that its image has one?"""
    return bool(command) and posixpath.basename(command[0]) in SHELLS


def wrapper(copies: Copies, printed: str, again: bool = False) -> str:
    """Runs its arguments, hands SIGTERM on, and copies what they left. Needs sh, mkdir and cp; for `printed` mkfifo and tee. `again`: another
    program may have left it too."""
    lines = [*_begun(copies, printed), "[ $code -eq 0 ] || exit $code", *_copied(copies, again)]
    return "\n".join([*lines, "exit 0"])


def staying() -> str:
    """Runs its arguments once. An init container that stays would be started again when they end."""
    rest = ['[ -z "$asked" ] || exit $code', "trap 'exit 0' TERM", "while :; do sleep 3600 & wait $!; done"]
    return "\n".join([*_begun((), ""), *rest])


def led(folder: str, copies: Copies, printed: str, goes_on: bool) -> str:
    """Runs what the leader of its pod has put into `folder`, when it is told to, and tells the leader how that ended. With `goes_on`, its container
    never fails. The pipe `life` is open while the container lives. Needs sh and sleep."""
    here = shlex.quote(folder)
    begin = f"""
trap 'exit 143' TERM
here={here}
until [ -e "$here/ready" ]; do sleep 0.1 2>/dev/null || sleep 1; done
exec 9>"$here/life"
read -r word <"$here/go" && [ "$word" = run ] || exit 0
. "$here/run"
"""
    listener = """(
read -r word <"$here/stop" && kill -TERM $task
read -r word <"$here/stop" && kill -KILL $task
) 9>&- >/dev/null 2>&1 &"""
    lines = begin.strip().splitlines()
    lines += _begun(copies, printed, [*listener.splitlines(), "echo begun >&9"], " 9>&-")
    if copies:
        lines += ["if :; then" if goes_on else "if [ $code -eq 0 ]; then", *_copied(copies, True), "fi"]
    lines += ["echo $code >&9", "exit 0" if goes_on else "exit $code"]
    return "\n".join(lines)


def _begun(copies: Copies, printed: str, then: Sequence[str] = (), without: str = "") -> list[str]:
    """Until the arguments have ended, with `code`. `then`: when they have been started; `without`: what they do not get."""
    # The end may be asked for before there is a process to hand it to.
    trap = """trap 'asked=1; if [ -n "$task" ]; then kill -TERM $task 2>/dev/null; else ended=1; fi' TERM"""
    lines = ["task= ended= asked=", trap]
    for path, place in copies:
        there = posixpath.dirname(f"{INSIDE}/{place}")
        lines.append(f"mkdir -p {shlex.quote(posixpath.dirname(path))} {shlex.quote(there)}")
    if printed:
        target, pipe = shlex.quote(f"{INSIDE}/{printed}"), shlex.quote(f"{INSIDE}/collected/pipe")
        folder = shlex.quote(posixpath.dirname(f"{INSIDE}/{printed}"))
        lines.append(f"mkdir -p {folder} && rm -f {pipe} && mkfifo {pipe} || exit 126")
        lines.append('[ -z "$ended" ] || exit 143')
        lines.append(f"tee {target} < {pipe}{without} & tee=$!")
        lines.append(f'"$@" > {pipe}{without} & task=$!')
    else:
        lines.append('[ -z "$ended" ] || exit 143')
        lines.append(f'"$@"{without} & task=$!')
    # A process that has just been forked loses a signal: it is given a moment.
    lines.append('[ -z "$ended" ] || { sleep 0.1; kill -TERM $task; } 2>/dev/null')
    lines += then
    lines.append("while :; do wait $task 2>/dev/null; code=$?; kill -0 $task 2>/dev/null || break; done")
    if printed:
        lines.append("wait $tee")
    return lines


def _copied(copies: Copies, again: bool = False) -> list[str]:
    lines = []
    for path, place in copies:
        source, target = shlex.quote(path), shlex.quote(f"{INSIDE}/{place}")
        first = f"rm -rf {target}; " if again else ""
        lines.append(f"if [ -e {source} ] || [ -L {source} ]; then {first}cp -R {source} {target} || exit 126; fi")
    return lines
