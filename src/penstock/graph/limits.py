"""The limits that names and numbers of a workflow have to keep. Read by graph.check, author and formats."""

from __future__ import annotations

import re
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,126}[A-Za-z0-9])?\Z", re.A)
"""A workflow, step, part or mount."""
VARIABLE: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,126}[A-Za-z0-9_])?\Z", re.A)
"""A parameter, input, output or loop variable."""
LARGEST_COUNT: Final = 10_000_000
"""The largest number of replicas, tries, rounds or holders."""
MOST_PROBLEMS: Final = 200
"""A check or a reader reports at most so many problems."""
