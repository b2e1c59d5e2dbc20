"""How an attempt of the process backend ended: outcome, outputs, message, log. Called by process when nothing of it runs any more."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from penstock.artifacts.blobs import Blobs
from penstock.backends import folders
from penstock.backends.base import AttemptEnded, BackendContext, LogPart
from penstock.backends.local import command, function_main, guard
from penstock.backends.local.files import is_heavy, read_outputs, read_partial_outputs
from penstock.backends.local.pod import HostPod
from penstock.backends.local.process_attempt import HostProcess, ProcessAttempt
from penstock.backends.own_error import outcome_of, read_error
from penstock.backends.processes import how_it_ended
from penstock.backends.secrets.masked_log import PRINTED
from penstock.graph.model import Function, Outcome

_LARGE = 1_000_000
_TAIL = 4096


def has_large_files(attempt: ProcessAttempt) -> bool:
    """Takes reading its outputs so long that another thread must do it?"""
    if is_heavy(attempt.spec):
        return True
    for path in attempt.files.outputs.values():
        with suppress(OSError):
            if os.path.getsize(path) > _LARGE:
                return True
    return False


def fill(attempt: ProcessAttempt, ended: AttemptEnded, blobs: Blobs, succeeded: bool, home: str) -> None:
    """Outcome, outputs, exit code and message of an attempt that could be run. May be called in another thread."""
    if succeeded:
        _succeeded(attempt, ended, blobs)
    elif attempt.failed_pod is not None:
        _failed_pod(attempt, attempt.failed_pod, ended, blobs)
    elif attempt.failed is not None:
        _failed(attempt, attempt.failed, ended, blobs)
    if ended.outcome is Outcome.FAILED and any(_was_denied(one, home) for one in attempt.processes):
        ended.message += f"; {guard.ADVICE}"


def _was_denied(process: HostProcess, home: str) -> bool:
    """Does the end of its log say so?"""
    if not process.guarded or process.code == 0:
        return False
    with suppress(OSError), open(f"{home}/{process.err}", "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL))
        return b"permission denied" in log.read(_TAIL).lower()
    return False


def _succeeded(attempt: ProcessAttempt, ended: AttemptEnded, blobs: Blobs) -> None:
    try:
        if isinstance(attempt.spec.action, Function):
            _function_result(attempt.processes[0], ended)
        else:
            ended.exit_code = 0
            for one in attempt.processes:
                if (
                    one.logs is not None
                    and one.out != one.err
                    and any(path.endswith(one.out) for path in one.logs.masked)
                ):
                    raise ValueError(PRINTED)
            ended.outputs = read_outputs(attempt.spec, attempt.files, blobs)
    except ValueError as error:
        ended.outcome, ended.message = Outcome.FAILED, str(error)
    except Exception as error:  # a full disk, an artifact store that does not answer
        ended.outcome, ended.message = Outcome.ERRORED, str(error) or type(error).__name__


def _function_result(process: HostProcess, ended: AttemptEnded) -> None:
    told = function_main.read_result(process.files.folder)
    if told is not None:
        (outcome, ended.outputs, ended.exception, ended.message, ended.traceback), ended.taken = told
        ended.outcome, ended.invalid = outcome_of(outcome)
        return
    ended.outcome, ended.exit_code, ended.message = Outcome.FAILED, process.code, how_it_ended(process.code)
    if process.code is not None and process.code >= 0:
        ended.message = f"the function ended its process with exit code {process.code}"


def _failed(attempt: ProcessAttempt, process: HostProcess, ended: AttemptEnded, blobs: Blobs) -> None:
    ended.outcome, ended.exit_code, ended.message = Outcome.FAILED, process.code, how_it_ended(process.code)
    if isinstance(attempt.spec.action, Function):
        _function_result(process, ended)
    else:
        read_error(ended, process.error)
    ended.outputs = read_partial_outputs(attempt.spec, attempt.files, blobs)
    if len(attempt.processes) > 1:
        ended.message = f"replica {process.number}: {ended.message}"


def _failed_pod(attempt: ProcessAttempt, pod: HostPod, ended: AttemptEnded, blobs: Blobs) -> None:
    failure = pod.progress.sequence.failure
    assert failure is not None
    ended.outcome, ended.exit_code = Outcome.FAILED, failure.code
    ended.message = pod.progress.sequence.explain(failure, how_it_ended(failure.code))
    read_error(ended, pod.error)
    ended.outputs = read_partial_outputs(attempt.spec, attempt.files, blobs)
    if len(attempt.pods) > 1:
        ended.message = f"replica {pod.number}: {ended.message}"


def close_logs(attempt: ProcessAttempt, home: str) -> tuple[LogPart, ...]:
    """What was printed. Removes empty logs."""
    if attempt.pods:
        return tuple(part for pod in attempt.pods for part in pod.progress.log.close())
    found: list[LogPart] = []
    for name in attempt.log_names:
        with suppress(OSError):
            size = os.path.getsize(f"{home}/{name}")
            if size:
                found.append((name, 0, size))
            else:
                os.unlink(f"{home}/{name}")
    return tuple(found)


def remove_files(attempt: ProcessAttempt, ended: AttemptEnded, context: BackendContext) -> str:
    """Removes what was made for the attempt; after a failure its folder stays, for inspection. Returns the folder above it if that
    may be empty now."""
    if command.is_plain(attempt.spec):
        return ""
    for files in [one.files for one in (attempt.pods or attempt.processes)]:
        for path in files.to_remove:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    folder = folders.work_folder(context.home, attempt.spec)
    if (ended.outcome is Outcome.FAILED and not attempt.spec.secrets) or not os.path.lexists(folder):
        return ""  # with secrets, nothing is left to inspect: an input or a mounted file may be one
    shutil.rmtree(folder, ignore_errors=True)
    return str(folder.parent)
