"""The log of a server: one line of JSON for everything, errors with their tracebacks in it too. Called by serving."""

from __future__ import annotations

import json
import logging
from typing import Any


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def structured() -> dict[str, Any]:
    """For logging.config. Of the libraries only warnings and errors."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonLines}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "loggers": {"uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False}},
    }
