"""The certificates of the webhook server: a CA of its own and a serving certificate, in a Secret that all replicas share. Used by run.Manager.

They are renewed long before they end, by whichever replica comes first; the others take what it wrote. The CA goes into the webhook configurations. A
new CA is first made known there beside the old one; only when every API server and every replica has had the time to hear of it, it signs what is served.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.controller.objects import ApiResource, rows
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.log import Log

SECRETS = ApiResource("v1", "Secret", "secrets")
CONFIGURATIONS = (
    ApiResource(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
    ),
)
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    ca: datetime.timedelta = 3650 * DAY
    serving: datetime.timedelta = 365 * DAY
    renew_at: float = 2 / 3
    """The part of its life after which a certificate is renewed."""
    settle: datetime.timedelta = datetime.timedelta(minutes=5)
    """From a new CA to the first certificate that it signs."""


@dataclass(frozen=True, slots=True)
class Material:
    """What the Secret holds, in PEM. `ca` may be several certificates, the youngest first."""

    ca: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes

    def data(self) -> dict[str, str]:
        parts = {"ca.crt": self.ca, "ca.key": self.ca_key, "tls.crt": self.certificate, "tls.key": self.key}
        return {name: base64.b64encode(part).decode() for name, part in parts.items()}

    @classmethod
    def read(cls, secret: Mapping[str, Any]) -> Material | None:
        try:
            data = secret["data"]
            parts = [base64.b64decode(data[name]) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")]
        except (KeyError, TypeError, ValueError):
            return None
        return cls(*parts) if all(parts) else None


def renewed(
    old: Material | None, hosts: Sequence[str], now: datetime.datetime, life: Lifetimes | None = None
) -> Material | None:
    """New material where the old is missing, damaged, near its end or for other hosts. None: it is good."""
    from cryptography.hazmat.primitives import serialization

    life = life or Lifetimes()
    parts = _parse(old) if old is not None else None
    if old is None or parts is None:
        ca, key = _authority(now, life.ca)
        return _served(ca, key, (), hosts, now, life)
    authorities, ca_key, serving, named = parts
    live = [one for one in authorities if one.not_valid_after_utc > now]
    usable = (
        serving.not_valid_after_utc > now
        and set(named) == {_host(host) for host in hosts}
        and any(serving.issuer == one.subject for one in live)
    )

    def bundle(*certificates: Any) -> bytes:
        return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)

    if authorities[0] not in live or _worn(authorities[0], now, life):
        ca, key = _authority(now, life.ca)
        made = _served(ca, key, live, hosts, now, life)
        return replace(made, certificate=old.certificate, key=old.key) if usable else made
    settled = now >= _made(authorities[0]) + life.settle
    foreign = serving.issuer != authorities[0].subject
    if not usable or (settled and (foreign or _worn(serving, now, life))):
        return _served(live[0], ca_key, live[1:], hosts, now, life)
    if len(live) < len(authorities):
        return replace(old, ca=bundle(*live))
    return None


def _parse(old: Material) -> tuple[list[Any], Any, Any, Any] | None:
    """The CAs, the key of the first, the serving certificate and its hosts. None: they cannot be read, or do not belong together."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        authorities = x509.load_pem_x509_certificates(old.ca)
        ca_key = serialization.load_pem_private_key(old.ca_key, None)
        serving = x509.load_pem_x509_certificates(old.certificate)[0]
        key = serialization.load_pem_private_key(old.key, None)
        named = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, IndexError, x509.ExtensionNotFound):
        return None
    if ca_key.public_key() != authorities[0].public_key() or key.public_key() != serving.public_key():
        return None
    return authorities, ca_key, serving, named


def _made(certificate: Any) -> datetime.datetime:
    """When it was made; it is valid from a little earlier (see _begin)."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    made: datetime.datetime = begin + min(datetime.timedelta(hours=1), (end - begin) / 11)
    return made


def _worn(certificate: Any, now: datetime.datetime, life: Lifetimes) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return bool(now > begin + (end - begin) * life.renew_at)


def _authority(now: datetime.datetime, life: datetime.timedelta) -> tuple[Any, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"penstock-webhooks-{secrets.token_hex(4)}")])
    built = (
        _begin(name, name, key.public_key(), now, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return built.sign(key, hashes.SHA256()), key


def _served(
    ca: Any, ca_key: Any, others: Sequence[Any], hosts: Sequence[str], now: datetime.datetime, life: Lifetimes
) -> Material:
    """A serving certificate by this CA. `others` are CAs that still count."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    built = (
        _begin(name, ca.subject, key.public_key(), now, life.serving)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(issuer, critical=False)
    )
    pem = serialization.Encoding.PEM
    serving = built.sign(ca_key, hashes.SHA256()).public_bytes(pem)

    def private(one: Any) -> bytes:
        made: bytes = one.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return made

    bundle = b"".join(one.public_bytes(pem) for one in (ca, *others))
    return Material(bundle, private(ca_key), serving, private(key))


def _begin(subject: Any, issuer: Any, key: Any, now: datetime.datetime, life: datetime.timedelta) -> Any:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - min(datetime.timedelta(hours=1), life / 10))  # clocks differ
        .not_valid_after(now + life)
    )


def _usage(**set_: bool) -> Any:
    from cryptography import x509

    names = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign "
        "encipher_only decipher_only"
    ).split()
    return x509.KeyUsage(**{name: set_.get(name, False) for name in names})


def _host(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class CertificateManager:
    """Keeps the Secret and the webhook configurations right. `look` is called from time to time, by every replica."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        secret: str,
        hosts: Sequence[str],
        configurations: Sequence[str],
        log: Log,
        *,
        life: Lifetimes | None = None,
        clock: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._client = client
        self._namespace, self._secret = namespace, secret
        self._hosts = tuple(hosts)
        self._configurations = tuple(configurations)
        self._log = log
        self._life = life or Lifetimes()
        self._clock = clock

    def look(self) -> Material:
        """The material to serve with now. Raises ApiError."""
        for _ in range(10):
            secret = self._client.found(SECRETS, self._namespace, self._secret)
            old = Material.read(secret) if secret else None
            new = renewed(old, self._hosts, self._clock(), self._life)
            if new is None and old is not None:
                self._announce(old.ca)
                return old
            assert new is not None
            try:
                self._write(secret, new)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
                continue  # another replica was quicker; its material is as good
            self._log.info("webhook certificate made" if old is None else "webhook certificate renewed")
            self._announce(new.ca)
            return new
        raise ApiError(409, "Conflict", f"the Secret {self._namespace}/{self._secret} changes all the time")

    def _write(self, secret: Mapping[str, Any] | None, material: Material) -> None:
        body = {"data": material.data()}
        if secret is None:
            meta = {"name": self._secret, "labels": {"app.kubernetes.io/name": "penstock"}}
            self._client.create(SECRETS, self._namespace, {"metadata": meta, "type": "kubernetes.io/tls", **body})
        else:
            version = str(secret["metadata"]["resourceVersion"])
            self._client.patch(SECRETS, self._namespace, self._secret, body, version=version)

    def _announce(self, ca: bytes) -> None:
        """The CA into the webhook configurations that have another one. Those that are not installed are passed over."""
        bundle = base64.b64encode(ca).decode()
        for resource in CONFIGURATIONS:
            for name in self._configurations:
                found = self._client.found(resource, "", name)
                hooks = rows(found or {}, "webhooks")
                changes = [
                    {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": bundle}
                    for number, hook in enumerate(hooks)
                    if (hook.get("clientConfig") or {}).get("caBundle") != bundle
                ]
                if found is None or not changes:
                    continue
                version = str(found["metadata"]["resourceVersion"])
                try:
                    self._client.patch(resource, "", name, changes, kind="json", version=version)
                    self._log.info("CA bundle written", configuration=name)
                except ApiError as error:
                    if error.code not in (404, 409, 422):  # 422: the test of the version in a JSON patch
                        raise
