"""A real tracking server of MLflow on 127.0.0.1, from PyPI, in a venv of its own. Used by tests/cluster/test_mlflow.py.

It is no component of an instance and needs no Go. Its dependencies are heavy (850 MB), so it is in nobody's requirements: the venv is made when the
server is wanted first, and kept beside the programs of the testbed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from time import monotonic, sleep
from typing import Self

from testbed import binaries
from testbed.errors import TestbedError
from testbed.keeper import die_with_parent
from testbed.ports import Ports

VERSION = "3.17.2"
_PATIENCE = 120.0


def program() -> Path:
    """Where mlflow is, or would be once installed."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return binaries.CACHE / "venv" / f"mlflow-{VERSION}-py{python}" / "bin" / "mlflow"


def install(seconds: float) -> None:
    """Raises TestbedError if that cannot be done in this time."""
    if program().exists():
        return
    folder = program().parents[1]
    shutil.rmtree(folder, ignore_errors=True)  # half of one, from a time before
    until = monotonic() + seconds
    try:
        for words in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"mlflow=={VERSION}"],
        ):
            subprocess.run(words, check=True, capture_output=True, text=True, timeout=max(1.0, until - monotonic()))
    except (subprocess.SubprocessError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        said = getattr(error, "stderr", "") or str(error)
        raise TestbedError(
            f"mlflow {VERSION} cannot be installed: {str(said).strip().splitlines()[-1][:200]}"
        ) from None


class MlflowServer:
    """`folder`: keeps everything. A context manager; afterwards the server is gone, and the folder is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = Ports(binaries.CACHE / "ports").take()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        words = [str(program()), "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        words += [
            "--backend-store-uri",
            f"sqlite:///{self.folder}/mlflow.db",
            "--artifacts-destination",
            str(self.artifacts),
        ]
        given = {
            "PATH": f"{program().parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
        }
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                words,
                env=given,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        until = monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or monotonic() > until:
                said = (self.folder / "log").read_text(errors="replace")[-2000:]
                self.stop()
                raise TestbedError(f"mlflow does not start:\n{said}")
            sleep(0.2)

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def stop(self) -> None:
        """kill -9 of all its processes. `start` starts it again with what it had written."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """It takes connections and says nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
