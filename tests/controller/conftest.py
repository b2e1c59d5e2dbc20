"""A fake API server for each test, and a client on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.controller.objects import ApiResource
from penstock.kubernetes.client import Client
from tests.controller.fake_api import FakeApi

THINGS = ApiResource("example.com/v1", "Thing", "things")


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi(THINGS)
    yield fake
    fake.stop()


@pytest.fixture
def client(api: FakeApi) -> Iterator[Client]:
    with Client(api.connection()) as made:
        yield made
