"""How an attempt of the container backend ended: outcome, outputs, message, log. Called by backend when nothing of it runs any more
and its containers still exist.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from penstock.backends.attempt import CannotRun
from penstock.backends.base import AttemptEnded, LogPart
from penstock.backends.container.attempt import ContainerAttempt
from penstock.backends.container.files import OUTPUTS, ContainerFiles
from penstock.backends.container.function import read_function_result
from penstock.backends.container.pod import PodContainers
from penstock.backends.container.run import RunningContainer
from penstock.backends.container.step import StepContainer
from penstock.backends.container.tool import ContainerTool
from penstock.backends.own_error import NAME, outcome_of, read_error
from penstock.backends.processes import signal_name
from penstock.backends.secrets.masked_log import PRINTED
from penstock.graph.model import Function, Outcome


async def fill(attempt: ContainerAttempt, ended: AttemptEnded, tool: ContainerTool) -> None:
    """Outcome, outputs and message of an attempt that was not stopped. Raises CannotRun, OSError, and what the blobs raise."""
    if attempt.error:
        raise CannotRun(attempt.error)
    failed = attempt.failed
    if failed is not None and failed.error:
        ended.outcome, ended.message, ended.lost = Outcome.ERRORED, failed.error, failed.lost
        if isinstance(attempt.spec.action, Function) and "python3" in failed.printed:
            ended.message += "; a function step needs Python 3.11 or newer in its image"
    elif isinstance(attempt.spec.action, Function):
        await _function_result(attempt, ended)
    elif failed is not None:
        ended.outcome, ended.exit_code, ended.message = Outcome.FAILED, failed.code, _how(failed.code)
        _own_error(attempt.replicas[failed.number].files, ended)
    elif attempt.failed_pod is not None and (failure := attempt.failed_pod.progress.sequence.failure) is not None:
        ended.outcome, ended.exit_code = Outcome.FAILED, failure.code
        ended.message = attempt.failed_pod.progress.sequence.explain(failure, _how(failure.code))
        _own_error(attempt.failed_pod.files, ended)
    else:
        ended.exit_code = 0
        await _outputs(attempt, ended, tool)
    if failed is not None and ended.outcome is not Outcome.SUCCEEDED:
        ended.cause = failed.cause
    if ended.message:
        ended.message = _where(attempt) + ended.message


def _own_error(files: ContainerFiles, ended: AttemptEnded) -> None:
    place = files.on_host(f"{OUTPUTS}/{NAME}")
    if place is not None:
        read_error(ended, str(place[0]), keep=True)


def _where(attempt: ContainerAttempt) -> str:
    """The replica and the part that failed, if there are several."""
    failed, where = attempt.failed, ""
    if attempt.ending and attempt.spec.step.replicas > 1:
        number = failed.number if failed is not None else attempt.failed_pod.number if attempt.failed_pod else 0
        where = f"replica {number}: "
    if failed is not None and failed.part is not None and len(attempt.pods[0].progress.sequence.parts) > 1:
        where += f"part {failed.part.name}: "
    return where


async def _function_result(attempt: ContainerAttempt, ended: AttemptEnded) -> None:
    replica = attempt.replicas[attempt.failed.number if attempt.failed is not None else 0]
    code = attempt.containers[replica.number].code
    try:
        result = await asyncio.to_thread(read_function_result, replica.files)
    except ValueError as error:
        ended.outcome, ended.message = Outcome.FAILED, str(error)
        return
    if result is not None and (result[0] != "succeeded" or code == 0):
        outcome, ended.outputs, ended.exception, ended.message, ended.traceback = result
        ended.outcome, ended.invalid = outcome_of(outcome)
        return
    ended.outcome, ended.exit_code = Outcome.FAILED, code
    ended.message = f"the function ended its process with {_how(code)}"


async def _outputs(attempt: ContainerAttempt, ended: AttemptEnded, tool: ContainerTool) -> None:
    first: StepContainer | PodContainers = attempt.pods[0] if attempt.pods else attempt.replicas[0]
    for path, to in first.files.outputs_to_copy():
        for one in _by_likelihood(attempt):
            if await tool.copy_out(one.spec.name, path, to):
                break
    try:
        if any(one.masked for one in attempt.containers):
            raise ValueError(PRINTED)
        ended.outputs = await asyncio.to_thread(first.files.read_outputs, first.stdout)
    except ValueError as error:
        ended.outcome, ended.message = Outcome.FAILED, str(error)


def _by_likelihood(attempt: ContainerAttempt) -> Iterator[RunningContainer]:
    """The containers in which an output may be. Of a pod: that of `main`, then the last first."""
    if not attempt.pods:
        yield attempt.containers[0]
        return
    parts = [one for one in attempt.containers if one.number == attempt.pods[0].number and not one.is_sidecar]
    mains = [one for one in parts if one.part is not None and one.part.name == "main"]
    yield from mains
    yield from (one for one in reversed(parts) if one not in mains)


def close_logs(attempt: ContainerAttempt, home: Path) -> tuple[LogPart, ...]:
    """What was printed. Removes empty logs."""
    if attempt.pods:
        return tuple(part for pod in attempt.pods for part in pod.progress.log.close())
    found: list[LogPart] = []
    for name in attempt.log_names:
        with suppress(OSError):
            size = os.path.getsize(home / name)
            if size:
                found.append((name, 0, size))
            else:
                (home / name).unlink()
    return tuple(found)


def _how(code: int | None) -> str:
    """An exit code in words. In a container, a signal is 128 plus its number."""
    if code is None or not 128 < code < 160:
        return f"exit code {code}"
    more = "; perhaps out of memory" if code - 128 == signal.SIGKILL else ""
    return f"exit code {code} ({signal_name(code - 128)}{more})"
