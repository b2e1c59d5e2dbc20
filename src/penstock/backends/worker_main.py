"""A worker process: takes calls, makes them, tells how they went. Started by backends.workers; not for people.

It begins an order only after reading the order's ticket from a pipe. The engine can read that pipe too, and so take back what
has not begun, however busy this process is: the kernel decides who has which ticket.

Start-up is felt by everybody, so little is imported before the first order.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import signal
import struct
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.backends.invoke import ERRORED, FAILED, SUCCEEDED, Call, described, environment
from penstock.backends.loader import Loader

HEAD = struct.Struct("<Q")
TICKET = struct.Struct("<I")
_ASYNC = getattr(os, "O_ASYNC", 0x2000)

Spec = tuple[str, str, str, str, str, tuple[tuple[str, str], ...], tuple[str, ...]]
"""Bundle, module, name, code, place, outputs with their types, inputs that are text."""
Work = tuple[int, int, dict[str, Any], dict[str, str]]
"""Ticket, number of the spec, inputs, environment."""


class Stop(SystemExit):
    """The engine has asked this process to end: what runs may clean up."""

    asked = False


class Worker:
    def __init__(self, socket: int, tickets: int, likely: list[str]) -> None:
        self.likely = likely
        """Modules to import when there is nothing else to do."""
        self.socket = socket
        self.tickets = tickets
        self.pid = os.getpid()
        self.buffer = b""
        settings = self.receive()
        self.blobs = Blobs(settings["blobs"])
        self.scratch = Path(settings["scratch"])
        self.loader = Loader(self.blobs, Path(settings["cache"]))
        self.specs: dict[int, Spec] = {}
        self.calls: dict[int, Call] = {}
        self.orders: dict[int, Work] = {}
        self.log_end = self.log_position()

    def receive(self) -> Any:
        """The next message, waited for."""
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
            while number not in self.orders:
                specs, orders = self.receive()
                self.specs.update(specs)
                for order in orders:
                    self.orders[order[0]] = order
            order = self.orders.pop(number)
            for skipped in [known for known in self.orders if known < number]:
                del self.orders[skipped]  # taken back by the engine
            self.work(*order)

    def ticket(self) -> bytes:
        """The next one, waited for; nothing when there will be none. The engine reads here too: what can be read may be gone."""
        while True:
            try:
                return os.read(self.tickets, TICKET.size)
            except BlockingIOError:
                select.select([self.tickets], [], [])

    def work(self, number: int, spec: int, inputs: dict[str, Any], env: dict[str, str]) -> None:
        started = perf_counter()
        try:
            told = self.call(number, spec, inputs, env)
        except Stop:
            raise
        except BaseException as error:  # of ours, or a signal's that came at a bad moment
            told = (ERRORED, {}, *described(error))
        seconds = perf_counter() - started
        if os.getpid() != self.pid:
            leave(0)  # the function forked, and this is the child: only the parent has a result to tell
        log = None
        end = self.log_position()
        if end != self.log_end:
            log, self.log_end = (self.log_end, end), end
        if told[0] == SUCCEEDED:
            self.send((number, seconds, log, told[1]))
        else:
            self.send((number, seconds, log, told))

    def call(self, number: int, spec: int, inputs: dict[str, Any], env: dict[str, str]) -> Any:
        bundle, module, name, code, place, outputs, texts = self.specs[spec]
        try:
            self.go_to(place)
        except OSError as error:
            return ERRORED, {}, "", f"it cannot start in {place}, where the run was started: {error.strerror}", ""
        try:
            function = self.loader.function(bundle, module, name, code, place)
        except Exception as error:
            return (ERRORED, {}, *described(error, with_traceback=error.__cause__ is not None))
        call = self.calls.get(spec)
        if call is None:
            call = self.calls[spec] = Call(function, outputs, frozenset(texts))
        folder = self.scratch / str(number)
        made = False

        def make() -> Path:
            nonlocal made
            made = True
            return folder

        try:
            if env:
                with environment(env):
                    told = call.run(inputs, self.blobs, make)
            else:
                told = call.run(inputs, self.blobs, make)
        finally:
            if made:
                import shutil

                shutil.rmtree(folder, ignore_errors=True)
        if told[0] == FAILED and told[2].endswith(Stop.__qualname__) and Stop.asked:
            raise Stop(143)
        return told

    def go_to(self, place: str) -> None:
        """Every function starts in the folder of its run, whatever the one before it did."""
        if place:
            try:
                if os.getcwd() == place:
                    return
            except OSError:  # the folder was removed
                pass
            os.chdir(place)

    def log_position(self) -> int:
        """How far the log has been written. Both streams go to one file, also those of child processes."""
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            return os.lseek(1, 0, os.SEEK_CUR)
        except (OSError, ValueError, AttributeError):  # the function closed or replaced them
            return self._reopen()

    def _reopen(self) -> int:
        log = os.environ.get("PENSTOCK_WORKER_LOG", os.devnull)
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for number in (1, 2):
            os.dup2(fd, number)
        if fd > 2:
            os.close(fd)
        sys.stdout = open(1, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
        return os.lseek(1, 0, os.SEEK_END)


def lifeline(fd: int) -> None:
    """End with the engine, and take along what the tasks have started.

    The engine holds the other end of this pipe and never writes to it. On Linux the kernel itself is asked to kill our
    process group when that end closes, which works even while a C extension keeps the interpreter to itself."""
    try:
        import fcntl

        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgid(0))
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | _ASYNC | os.O_NONBLOCK)
        try:
            if os.read(fd, 1) == b"":
                leave(0)  # it was gone before we asked
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
    """As long as nothing comes from there, the engine is still planning: import what will probably be asked for."""
    while modules and not select.select([fd], [], [], 0)[0]:
        importlib.import_module(modules.pop(0))


def leave(code: int) -> None:
    """Out, without waiting for threads that a task left behind."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def on_terminate(number: int, frame: object) -> None:
    Stop.asked = True
    raise Stop(143)


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
        Worker(socket, tickets, likely).serve()
    except Stop:
        leave(143)
    import atexit

    if atexit._ncallbacks():
        atexit._run_exitfuncs()
    leave(0)
