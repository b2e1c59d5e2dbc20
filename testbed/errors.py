"""The testbed's one error: a sentence that says what is wrong and what to do. Raised everywhere in testbed/, shown by __main__ and the fixtures."""

from __future__ import annotations


class TestbedError(Exception):
    __test__ = False  # the name begins with Test; pytest would collect it


class ApiError(Exception):
    """What the API server answered when it refused a request."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code, self.reason, self.message = code, reason, message
