"""A worker process: receives calls, makes them and sends back the results. Started by prestart; users do not call it.

It begins a call only after it has read the call's ticket from a pipe. The engine can read that pipe too, and so take back calls that
have not begun, however busy this process is: the kernel decides who gets which ticket.

Start-up time matters to everybody, so little is imported before the first call.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import signal
import sys
from pathlib import Path
from time import monotonic, perf_counter, process_time
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.backends.local.invoke import ERRORED, FAILED, SUCCEEDED, FunctionCall, described, environment
from penstock.backends.local.loader import Loader
from penstock.backends.local.started import StartedProcesses
from penstock.backends.local.worker_protocol import HEAD, TICKET, FunctionSpec, WorkerCall

_ASYNC = getattr(os, "O_ASYNC", 0x2000)


class StopRequested(SystemExit):
    """The engine has asked this process to end. The running function may clean up."""

    asked = False


class WorkerServer:
    def __init__(self, socket: int, tickets: int, likely: list[str]) -> None:
        self.likely = likely
        """Modules to import while there is nothing else to do."""
        self.socket = socket
        self.tickets = tickets
        self.pid = os.getpid()
        self.buffer = b""
        settings = self.receive()
        self.blobs: Blobs = settings["blobs"]
        self.scratch = Path(settings["scratch"])
        self.loader = Loader(self.blobs, Path(settings["cache"]))
        self.functions: dict[int, FunctionSpec] = {}
        self.calls: dict[int, FunctionCall] = {}
        self.waiting: dict[int, WorkerCall] = {}
        self.log_end = self.log_position()
        self.started = StartedProcesses()

    def receive(self) -> Any:
        """Waits for the next message."""
        buffer = self.buffer
        while True:
            if len(buffer) >= HEAD.size:
                size = HEAD.unpack_from(buffer)[0] + HEAD.size
                if len(buffer) >= size:
                    self.buffer = buffer[size:]
                    return pickle.loads(memoryview(buffer)[HEAD.size : size])
                pieces = [buffer]
                missing = size - len(buffer)
                while missing > 0:
                    piece = self.read(max(missing, 65536))
                    pieces.append(piece)
                    missing -= len(piece)
                buffer = b"".join(pieces)
            else:
                buffer += self.read(262144)

    def read(self, most: int) -> bytes:
        data = os.read(self.socket, most)
        if not data:
            leave(0)
        return data

    def send(self, message: Any) -> None:
        data = pickle.dumps(message, protocol=5)
        data = HEAD.pack(len(data)) + data
        while data:
            data = data[os.write(self.socket, data) :]

    def serve(self) -> None:
        self.send(None)
        use_time(self.tickets, self.likely)
        while ticket := self.ticket():
            number = TICKET.unpack(ticket)[0]
            while number not in self.waiting:
                functions, calls = self.receive()
                self.functions.update(functions)
                for call in calls:
                    self.waiting[call[0]] = call
            call = self.waiting.pop(number)
            for skipped in [known for known in self.waiting if known < number]:
                del self.waiting[skipped]  # taken back by the engine
            self.work(*call)

    def ticket(self) -> bytes:
        """Waits for the next one; empty when there will be none. The engine reads here too, so a ticket may disappear before it is read."""
        while True:
            try:
                return os.read(self.tickets, TICKET.size)
            except BlockingIOError:
                select.select([self.tickets], [], [])

    def work(self, number: int, function_number: int, inputs: dict[str, Any], env: dict[str, str]) -> None:
        started, used = perf_counter(), -self.cpu()
        try:
            result = self.call(number, function_number, inputs, env)
        except StopRequested:
            raise
        except BaseException as error:  # of Penstock, or of a signal that came outside of the function
            result = (ERRORED, {}, *described(error))
        seconds = perf_counter() - started
        if os.getpid() != self.pid:
            leave(0)  # the function forked, and this is the child: only the parent sends a result
        if self.started.any:
            self.started.end()
        used += self.cpu()
        log = None
        end = self.log_position()
        if end != self.log_end:
            log, self.log_end = (self.log_end, end), end
        if result[0] == SUCCEEDED:
            paths = self.calls[function_number].taken
            ended = monotonic()
            self.send((number, seconds, used, log, result[1], (ended - seconds, ended, paths) if paths else None))
        else:
            self.send((number, seconds, used, log, result, None))

    def cpu(self) -> float:
        """Processor time of this process, and of those that it has started and waited for."""
        times = os.times()
        return process_time() + times.children_user + times.children_system

    def call(self, number: int, function_number: int, inputs: dict[str, Any], env: dict[str, str]) -> Any:
        bundle, module, name, code, start, outputs, texts = self.functions[function_number]
        try:
            self.go_to(start)
        except OSError as error:
            return ERRORED, {}, "", f"it cannot start in {start}, where the run was started: {error.strerror}", ""
        try:
            function = self.loader.function(bundle, module, name, code, start)
        except Exception as error:
            return (ERRORED, {}, *described(error, with_traceback=error.__cause__ is not None))
        call = self.calls.get(function_number)
        if call is None:
            call = self.calls[function_number] = FunctionCall(function, outputs, frozenset(texts))
        folder = self.scratch / str(number)
        made = False

        def make() -> Path:
            nonlocal made
            made = True
            return folder

        try:
            if env:
                with environment(env):
                    result = call.run(inputs, self.blobs, make)
            else:
                result = call.run(inputs, self.blobs, make)
        finally:
            if made:
                import shutil

                shutil.rmtree(folder, ignore_errors=True)
        if result[0] == FAILED and result[2].endswith(StopRequested.__qualname__) and StopRequested.asked:
            raise StopRequested(143)
        return result

    def go_to(self, folder: str) -> None:
        """Every function starts in the working directory of its run, whatever the one before it did."""
        if folder:
            try:
                if os.getcwd() == folder:
                    return
            except OSError:  # the folder was removed
                pass
            os.chdir(folder)

    def log_position(self) -> int:
        """The end of the log. Both streams go to one file, also those of child processes."""
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            return os.lseek(1, 0, os.SEEK_CUR)
        except (OSError, ValueError, AttributeError):  # the function closed or replaced them
            return self._reopen()

    def _reopen(self) -> int:
        log = os.environ.get("PENSTOCK_WORKER_LOG", os.devnull)
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for number in (1, 2):
            os.dup2(fd, number)
        if fd > 2:
            os.close(fd)
        sys.stdout = open(1, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
        return os.lseek(1, 0, os.SEEK_END)


def lifeline(fd: int) -> None:
    """Ends this process, and what its tasks have started, when the engine ends.

    The engine holds the other end of this pipe and never writes to it. On Linux the kernel kills our process group when that end
    closes. This works even while a C extension holds the interpreter."""
    try:
        import fcntl

        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgid(0))
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | _ASYNC | os.O_NONBLOCK)
        try:
            if os.read(fd, 1) == b"":
                leave(0)  # the engine had already ended
        except BlockingIOError:
            pass
    except (ImportError, AttributeError, OSError):
        import threading

        def wait() -> None:
            os.set_blocking(fd, True)
            os.read(fd, 1)
            os.killpg(os.getpgid(0), signal.SIGKILL)

        threading.Thread(target=wait, daemon=True, name="lifeline").start()


def use_time(fd: int, modules: list[str]) -> None:
    """Imports modules that will probably be needed, until something arrives at `fd`: meanwhile the engine is still planning."""
    while modules and not select.select([fd], [], [], 0)[0]:
        importlib.import_module(modules.pop(0))


def leave(code: int) -> None:
    """Exits without waiting for threads that a task left running."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def on_terminate(number: int, frame: object) -> None:
    StopRequested.asked = True
    raise StopRequested(143)


def main(arguments: list[str]) -> None:
    socket, tickets, life = map(int, arguments[:3])
    likely = arguments[3:]
    for fd in (socket, tickets, life):
        os.set_inheritable(fd, False)
    lifeline(life)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    try:
        signal.signal(signal.SIGTERM, on_terminate)
        use_time(socket, likely)
        WorkerServer(socket, tickets, likely).serve()
    except StopRequested:
        leave(143)
    import atexit

    if atexit._ncallbacks():
        atexit._run_exitfuncs()
    leave(0)
