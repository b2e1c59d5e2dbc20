"""A server for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.served import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("served") / ".penstock") as found:
        yield found
