"""Labels and annotations that Argo gives a meaning. Read and written by the Argo reader and writer."""

from __future__ import annotations

from typing import Final

DESCRIPTION: Final = "workflows.argoproj.io/description"
