"""What the engine and its worker processes send each other. Used by worker_process (the engine's end) and worker_main.

Messages are pickles with their length in front. The engine sends first a dict of settings, then pairs (functions by number, calls).
A worker sends None when it is ready, then (ticket, seconds, seconds of processor time, part of the log, result, files taken) for each call.
"""

from __future__ import annotations

import struct
from typing import Any

HEAD = struct.Struct("<Q")
"""The length of a message."""
TICKET = struct.Struct("<I")

FunctionSpec = tuple[str, str, str, str, str, tuple[tuple[str, str], ...], tuple[str, ...]]
"""Bundle, module, name, code, working directory, outputs with their types, inputs that are text."""
WorkerCall = tuple[int, int, dict[str, Any], dict[str, str]]
"""Ticket, number of the function, inputs, environment."""
