"""Keeps programs that insist on listening on all interfaces off the network. Called by instance.py; uses the standard library only.

Such a program runs in a network namespace of its own that has nothing but loopback. Two small relays, one on each side, meet at sockets in
the file system, which network namespaces do not divide: inside, 127.0.0.1:6443 leads to the instance's API server; outside, a port on
127.0.0.1 leads to each port of the program that somebody must reach (a webhook, a REST service).

    python tunnel.py outside FOLDER API_PORT [HOST_PORT:PORT ...]
    unshare --net [--map-root-user] python tunnel.py inside FOLDER [PORT ...] -- PROGRAM ARGUMENT ...
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

API_PORT = 6443
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _loopback_up() -> None:
    flags, up, running = 0x8914, 0x1, 0x40  # SIOCSIFFLAGS, IFF_UP, IFF_RUNNING
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, flags, struct.pack("16sh14x", b"lo", up | running))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        with contextlib.suppress(OSError):
            writer.close()


def _relay(
    there: Callable[[], Awaitable[_Streams]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await there()
        except OSError:  # nobody listens yet: the caller sees a closed connection and tries again
            writer.close()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    return serve


def _tcp(port: int) -> Callable[[], Awaitable[_Streams]]:
    return lambda: asyncio.open_connection("127.0.0.1", port)


def _unix(path: Path) -> Callable[[], Awaitable[_Streams]]:
    return lambda: asyncio.open_unix_connection(path)


async def _outside(folder: Path, api: int, exposed: dict[int, int]) -> None:
    await asyncio.start_unix_server(_relay(_tcp(api)), folder / "api.sock")
    for host_port, port in exposed.items():
        await asyncio.start_server(_relay(_unix(folder / f"{port}.sock")), "127.0.0.1", host_port)
    await asyncio.Event().wait()


async def _inside(folder: Path, ports: list[int], argv: list[str]) -> int:
    _loopback_up()
    await asyncio.start_server(_relay(_unix(folder / "api.sock")), "127.0.0.1", API_PORT)
    for port in ports:
        await asyncio.start_unix_server(_relay(_tcp(port)), folder / f"{port}.sock")
    program = await asyncio.create_subprocess_exec(*argv, preexec_fn=_die_with_parent)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, program.terminate)
    return await program.wait()


def _die_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def main() -> int:
    # Entering a user namespace clears the parent-death signal that we were started with.
    _die_with_parent()
    side, folder, rest = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    if side == "outside":
        pairs = [word.split(":") for word in rest[1:]]
        asyncio.run(_outside(folder, int(rest[0]), {int(here): int(there) for here, there in pairs}))
        return 0
    cut = rest.index("--")
    return asyncio.run(_inside(folder, [int(port) for port in rest[:cut]], rest[cut + 1 :]))


def argv(folder: Path, ports: tuple[int, ...], program: list[str]) -> list[str]:
    """How to start the program with its relay in a namespace of its own."""
    enter = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    return [*enter, sys.executable, __file__, "inside", str(folder), *map(str, ports), "--", *program]


def available() -> bool:
    """Whether this machine lets us make such a namespace."""
    enter = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    return subprocess.run([*enter, "true"], capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
