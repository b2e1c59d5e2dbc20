"""From an attempt's spec to the processes that run it: files, words, environment. Called by process."""

from __future__ import annotations

import os

from penstock import rights
from penstock.backends import folders
from penstock.backends.attempt import (
    COORDINATOR,
    for_replica,
    penstock_env,
    replica_error,
    replica_folder,
    replica_logs,
    starts_at_root,
    step_env,
)
from penstock.backends.base import AttemptSpec, BackendContext
from penstock.backends.environment import for_tasks
from penstock.backends.local import command, function_main, guard, shims
from penstock.backends.local.files import HostFiles, make_files, start_folder
from penstock.backends.local.pod import HostPod
from penstock.backends.local.process_attempt import HostProcess, ProcessAttempt
from penstock.backends.own_error import NAME
from penstock.graph.model import Action, Container, Function, Pod, Script


class ProcessBuilder:
    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._home = str(context.home)
        self._environ = dict(context.environ or for_tasks(os.environ))
        self._environ |= {"PENSTOCK_ENGINE": context.engine, "PENSTOCK_HOME": self._home}
        self._guards = guard.is_on(self._environ)
        self._plain_files: dict[str, HostFiles] = {}
        """By the folder that the command starts in."""

    def build(self, attempt: ProcessAttempt) -> None:
        """May be called in another thread. Sets `attempt.error` if it cannot be run."""
        spec = attempt.spec
        try:
            for number in range(max(1, spec.step.replicas)):
                if isinstance(spec.action, Pod):
                    attempt.pods.append(HostPod(spec, number, self._context, self._environ))
                elif command.is_plain(spec):
                    attempt.processes.append(self._plain(spec))
                else:
                    attempt.processes.append(self._replica(for_replica(spec, number), number))
        except Exception as error:  # a blob that is missing, a full disk, a value that has no form as text
            attempt.error = str(error) or type(error).__name__

    def _replica(self, spec: AttemptSpec, number: int) -> HostProcess:
        context = self._context
        out, err = replica_logs(spec, number)
        if out != err:
            (context.home / out).unlink(missing_ok=True)  # left by the same attempt before a crash
        folder = replica_folder(context, spec, number)
        files = make_files(spec, folder, context, context.home / out)
        if isinstance(spec.action, Function):
            function_main.write_call(spec, folder, context.blobs, str(context.home / "cache"))
        words = command.words_of(spec, files, context.blobs)
        error = str(context.home / replica_error(spec, number))
        if self.is_guarded(spec):  # it may write to its own files alone
            rights.make_folder(files.out)
            error = str(files.out / f".{NAME}")
        env = self._environ | penstock_env(spec, context, number, str(files.out), error)
        if starts_at_root(spec):
            env |= files.temporary()
        if spec.step.replicas > 1:
            env[COORDINATOR] = "localhost"
        for name, value in step_env(spec.action, context.blobs).items():
            env[name] = files.relocate(value)
        env |= function_main.secret_env(spec)
        self._add_shims(spec.action, env)
        guarded = self.is_guarded(spec)
        return HostProcess(number, files, words, env, out, err, start=files.start, error=error, guarded=guarded)

    def is_guarded(self, spec: AttemptSpec) -> bool:
        """Was it written for an image, and may it write to its own files alone?"""
        return self._guards and starts_at_root(spec)

    def _plain(self, spec: AttemptSpec) -> HostProcess:
        """A command that reads and writes no files, as most do: nothing is made for it."""
        start = start_folder(spec)
        files = self._plain_files.get(start)
        if files is None:
            files = self._plain_files[start] = HostFiles(self._context.home / "work", start)
        name = folders.attempt_name(spec)
        run = folders.mangled(spec.run)
        log = f"logs/{run}/{name}.log"
        words = command.words_of(spec, files, self._context.blobs)
        error = f"{self._home}/logs/{run}/{name}.{NAME}"
        env = self._environ | penstock_env(spec, self._context, 0, f"{self._home}/work/{run}/{name}/out", error)
        env |= step_env(spec.action, self._context.blobs)
        self._add_shims(spec.action, env)
        return HostProcess(0, files, words, env, log, log, start=start, error=error)

    def _add_shims(self, action: Action, env: dict[str, str]) -> None:
        if isinstance(action, Container | Script) and action.image is not None:
            env["PATH"] = shims.with_shims(env.get("PATH", os.defpath), self._context.home)
