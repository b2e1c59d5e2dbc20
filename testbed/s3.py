"""An S3 server on 127.0.0.1 over a folder: versitygw with its posix backend. Used by tests/cluster/test_s3.py.

It needs no Kubernetes, so it is no component of an instance. Metadata of objects are kept in a folder beside, because not every file system
has extended attributes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from time import monotonic, sleep
from typing import Self

from testbed import binaries
from testbed.errors import TestbedError
from testbed.keeper import die_with_parent
from testbed.ports import Ports

PROGRAM = "versitygw"
_PATIENCE = 30.0


class S3:
    """`folder`: buckets are the folders in `folder`/data. A context manager; afterwards the server is gone, and the folder is left."""

    access, secret, region = "testbed", "testbed-secret", "us-east-1"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = Ports(binaries.CACHE / "ports").take()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("data", "meta"):
            (folder / name).mkdir(parents=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to know, as variables that AWS's own libraries read."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def make_bucket(self, name: str) -> None:
        """The posix backend takes a folder for a bucket."""
        (self.folder / "data" / name).mkdir()

    def start(self) -> None:
        words = [str(binaries.path(PROGRAM)), "--port", f"127.0.0.1:{self.port}", "--health", "/health", "--quiet"]
        words += ["--region", self.region, "posix", "--sidecar", str(self.folder / "meta"), str(self.folder / "data")]
        given = {"PATH": os.environ["PATH"], "ROOT_ACCESS_KEY": self.access, "ROOT_SECRET_KEY": self.secret}
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                words, env=given, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
            )
        until = monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or monotonic() > until:
                said = (self.folder / "log").read_text(errors="replace")[-2000:]
                self.stop()
                raise TestbedError(f"{PROGRAM} does not start:\n{said}")
            sleep(0.05)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.endpoint}/health", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def stop(self) -> None:
        """At once, as in a power cut. `start` starts it again on the same folder and port."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
