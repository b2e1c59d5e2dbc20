"""The webhooks' certificates through time: always valid, always trusted by what was announced before, renewed in time, shared by replicas."""

from __future__ import annotations

import base64
import datetime
import io
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.cluster.certificates import (
    CONFIGURATIONS,
    SECRETS,
    CertificateManager,
    Lifetimes,
    Material,
    renewed,
)
from penstock.kubernetes.client import Client
from penstock.kubernetes.log import Log
from tests.controller.fake_api import FakeApi, Fault

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
LIFE = Lifetimes(ca=1000 * HOUR, serving=200 * HOUR, settle=2 * HOUR)
HOSTS = ("127.0.0.1", "hooks.ns.svc")


def trusts(ca: bytes, material: Material, now: datetime.datetime) -> bool:
    """Would a client with this bundle take the certificate at this moment?"""
    serving = x509.load_pem_x509_certificate(material.certificate)
    for one in x509.load_pem_x509_certificates(ca):
        if one.subject != serving.issuer or not one.not_valid_before_utc <= now <= one.not_valid_after_utc:
            continue
        serving.verify_directly_issued_by(one)
        return serving.not_valid_before_utc <= now <= serving.not_valid_after_utc
    return False


@settings(max_examples=20)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_through_time_what_is_served_is_trusted_by_what_was_announced_before(steps: list[int]) -> None:
    """Looks at any intervals of up to 40 hours. A client may hear of a bundle only at the next look."""
    now, material = NOW, renewed(None, HOSTS, NOW, LIFE)
    assert material is not None
    known = material.ca
    for step in steps * 3:
        now += step * HOUR
        announced = known
        material = renewed(material, HOSTS, now, LIFE) or material
        assert renewed(material, HOSTS, now, LIFE) is None
        assert trusts(material.ca, material, now)
        assert trusts(announced, material, now)
        known = material.ca
        assert len(x509.load_pem_x509_certificates(material.ca)) <= 3


def test_other_hosts_and_damage_are_put_right() -> None:
    good = renewed(None, HOSTS, NOW, LIFE)
    assert good is not None
    other = renewed(good, ("elsewhere.svc",), NOW, LIFE)
    assert other is not None
    assert other.ca == good.ca
    damaged = Material(good.ca, good.ca_key, b"nonsense", good.key)
    assert renewed(damaged, HOSTS, NOW, LIFE) is not None
    mixed = Material(good.ca, good.ca_key, good.certificate, other.key)
    assert renewed(mixed, HOSTS, NOW, LIFE) is not None
    assert Material.read({"data": {"ca.crt": "!"}}) is None
    assert Material.read({"data": good.data()}) == good


def test_after_a_long_sleep_everything_is_new() -> None:
    old = renewed(None, HOSTS, NOW, LIFE)
    late = NOW + 5000 * HOUR
    new = renewed(old, HOSTS, late, LIFE)
    assert new is not None
    assert trusts(new.ca, new, late)


@pytest.fixture
def hooks(api: FakeApi) -> FakeApi:
    for resource in (SECRETS, *CONFIGURATIONS):
        api.install(resource)
    return api


def keeper(client: Client, now: list[datetime.datetime], **given: Any) -> CertificateManager:
    return CertificateManager(
        client, "ns", "hooks", HOSTS, ["mine", "absent"], Log(io.StringIO()), life=LIFE, clock=lambda: now[0], **given
    )


def bundle(api: FakeApi) -> list[str]:
    found = api.get(CONFIGURATIONS[0], "", "mine")
    assert found is not None
    return [hook["clientConfig"].get("caBundle", "") for hook in found["webhooks"]]


def test_replicas_share_one_secret_and_the_configurations_get_the_ca(hooks: FakeApi, client: Client) -> None:
    hooks.put(
        CONFIGURATIONS[0],
        {"metadata": {"name": "mine"}, "webhooks": [{"clientConfig": {}}, {"clientConfig": {"caBundle": "old"}}]},
    )
    now = [NOW]
    one, two = keeper(client, now), keeper(client, now)
    first = one.look()
    assert two.look() == first
    encoded = base64.b64encode(first.ca).decode()
    assert bundle(hooks) == [encoded, encoded]
    writes = len([1 for method, _ in hooks.requests if method != "GET"])
    one.look()
    assert len([1 for method, _ in hooks.requests if method != "GET"]) == writes
    now[0] += 150 * HOUR
    second = two.look()
    assert second != first
    assert one.look() == second
    secret = hooks.get(SECRETS, "ns", "hooks")
    assert secret is not None
    assert Material.read(secret) == second


def test_who_comes_second_takes_what_the_first_wrote(hooks: FakeApi, client: Client) -> None:
    now = [NOW]
    written = keeper(client, now).look()
    late = keeper(client, now)
    # It saw no Secret, and then another made one.
    hooks.faults.append(Fault(lambda method, path: method == "GET" and "secrets" in path, 404, "NotFound"))
    assert late.look() == written
