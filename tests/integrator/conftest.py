"""Both databases, as the tests of the store have them."""

from __future__ import annotations

from tests.store.conftest import another, store, where  # noqa: F401
