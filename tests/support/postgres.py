"""A PostgreSQL server for tests, from the binaries on this machine. Used by the fixture `postgres_url` in tests/conftest.py.

It lives in a folder of its own, listens on a free port of 127.0.0.1, does not care for power cuts, and ends with the tests.
PostgreSQL refuses to run as root; then it runs as the user `postgres`, or `nobody`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path


def binaries() -> Path | None:
    """The folder with initdb and postgres, if there is one."""
    found = [Path(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: -_version(p))]
    if on_path := shutil.which("initdb"):
        found.insert(0, Path(on_path).resolve().parent)
    return next((path for path in found if (path / "initdb").exists() and (path / "postgres").exists()), None)


def _version(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdigit() else 0


class Server:
    def __init__(self, folder: Path) -> None:
        self._bin = folder
        self._numbers = itertools.count(1)
        # Not under pytest's own folder: the other user could not walk into it.
        self.home = Path(tempfile.mkdtemp(prefix="penstock-pg-", dir="/tmp"))
        self._as: list[str] = []
        if os.geteuid() == 0:
            user = next(user for user in map(_user, ("postgres", "nobody")) if user)
            os.chown(self.home, user.pw_uid, user.pw_gid)
            self._as = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self.home.chmod(0o755)
        self._data = self.home / "data"
        self._run("initdb", "-D", str(self._data), "-U", "penstock", "-A", "trust", "-E", "UTF8", "-N", *self._locale())
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def tool(self, name: str) -> str:
        """A program of the same version: pg_dump."""
        return str(self._bin / name)

    def start(self) -> None:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.home,
            "fsync": "off",
            "full_page_writes": "off",
            "max_connections": 60,
            "shared_buffers": "32MB",
        }
        command = [*self._as, str(self._bin / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with open(self.home / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        until = time.monotonic() + 60
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError((self.home / "log").read_text())
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: at once, but in order. SIGQUIT: as if it had crashed."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.home, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://penstock@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, sql: str) -> None:
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as db:
            db.execute(sql)  # type: ignore[arg-type,unused-ignore]

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url(), connect_timeout=2).close()
            return True
        return False

    def _locale(self) -> list[str]:
        """English if it is to be had: a database that sorts as people do shows where the store counts on its own order."""
        said = subprocess.run([str(self._bin / "initdb"), "--help"], capture_output=True, text=True, check=True).stdout
        return ["--locale=C.UTF-8", *(["--locale-provider=icu", "--icu-locale=en"] if "icu-locale" in said else [])]

    def _run(self, program: str, *args: str) -> None:
        command = [*self._as, str(self._bin / program), *args]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")


def _user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None
