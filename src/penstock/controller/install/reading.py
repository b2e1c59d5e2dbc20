"""Reading a cluster with kubectl, because the user has set it up: contexts, logins, plugins, proxies. Used by `penstock controller check`."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from penstock.backends.tools import find, last_line
from penstock.controller.install.check import Get
from penstock.errors import NotFound, Problem, UserError


def reader(context: str = "", seconds: float = 30.0) -> Get:
    """Raises NotFound if there is no kubectl."""
    words = find(os.environ, "PENSTOCK_KUBECTL", ["kubectl"])
    if words is None:
        raise NotFound(Problem("P870", "there is no kubectl here", "install it, or name it in PENSTOCK_KUBECTL"))
    command = [*words, *(["--context", context] if context else [])]

    def get(path: str) -> Any | None:
        try:
            done = subprocess.run(
                [*command, "get", "--raw", path], capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise _silent(f"no answer within {seconds:g} seconds") from None
        if done.returncode == 0:
            return json.loads(done.stdout)
        if "NotFound" in done.stderr or "could not find the requested resource" in done.stderr:
            return None
        raise _silent(last_line(done.stderr) or "no reason given")

    return get


def _silent(reason: str) -> UserError:
    fix = "check `kubectl config current-context`, and your rights there: it takes those of an administrator"
    return UserError(Problem("P895", f"the cluster cannot be read: {reason}", fix))
