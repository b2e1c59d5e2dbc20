"""A browser that signs in, a provider as a process, and one that lies."""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from joserfc import jwt
from joserfc.jwk import RSAKey

from penstock.server.oidc.settings import SignInSettings

ROLES = {"admin": ("platform",), "operator": ("ops",), "submitter": ("science",)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def settings_for(issuer: str, url: str, **more: Any) -> SignInSettings:
    given: dict[str, Any] = {"issuer": issuer, "client_id": "penstock", "secret": "of the client", "url": url}
    return SignInSettings(**{**given, "roles": ROLES, "skew": 5.0, **more})


class ProviderProcess:
    """django-oauth-toolkit. `groups`: person → groups."""

    def __init__(self, folder: Path, callback: str, parting: str, groups: Mapping[str, list[str]]) -> None:
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}/o"
        self.folder = folder
        self.config: dict[str, Any] = {
            "port": self.port,
            "folder": str(folder),
            "redirects": [callback],
            "parting": [parting],
            "groups": dict(groups),
        }

    def start(self) -> None:
        """With a new key."""
        self.config["key"] = RSAKey.generate_key(2048).as_pem(private=True).decode()
        path = self.folder / "provider.json"
        path.write_text(json.dumps(self.config))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.provider_site", str(path)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> ProviderProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Visitor:
    """A browser, as far as it matters: cookies, links, forms; it goes where it is sent, step by step."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.client = httpx2.Client(headers={"Accept": "text/html"}, timeout=20)

    def look_at(self, url: str) -> httpx2.Response:
        return self.client.get(urljoin(self.base, url))

    def sign_in(self, person: str, there: str = "/queues", until: str = "") -> httpx2.Response:
        """The last answer; with `until`, the one that would lead to an address that begins so."""
        found = self.look_at(f"/login/oidc?next={there}")
        for _ in range(10):
            if found.is_redirect:
                there = urljoin(str(found.request.url), found.headers["location"])
                if until and there.startswith(until):
                    return found
                found = self.client.get(there)
            elif "password" in found.text and "csrfmiddlewaretoken" in found.text:
                word = re.search(r'csrfmiddlewaretoken" value="([^"]+)', found.text)
                following = re.search(r'name="next" value="([^"]*)', found.text)
                assert word and following
                form = {
                    "csrfmiddlewaretoken": word[1],
                    "username": person,
                    "password": "open",
                    "next": html.unescape(following[1]),
                }
                found = self.client.post(str(found.request.url), data=form)
            else:
                break
        return found

    def close(self) -> None:
        self.client.close()


class Liar:
    """A provider that answers whatever a test wants: `claims` and `sign` change what would be right."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "good"})
        self.other = RSAKey.generate_key(2048, {"kid": "good"})
        self.claims: Callable[[dict[str, Any]], dict[str, Any]] = lambda claims: claims
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.metadata: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.keys_asked = 0
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                if parts.path == "/.well-known/openid-configuration":
                    self.say(liar.discovered())
                elif parts.path == "/keys":
                    liar.keys_asked += 1
                    self.say({"keys": [liar.key.as_dict(private=False)]})
                elif parts.path == "/userinfo":
                    self.say(liar.userinfo)
                else:
                    self.send_error(404)

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                liar.asked = {name: values[0] for name, values in parse_qs(self.rfile.read(length).decode()).items()}
                self.say({"access_token": "access", "token_type": "Bearer", "id_token": liar.sign(liar.made())})

            def say(self, data: Any) -> None:
                body = json.dumps(data).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        self.nonce = ""
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def discovered(self) -> dict[str, Any]:
        right = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
        }
        return {**right, **self.metadata}

    def made(self) -> dict[str, Any]:
        now = int(time.time())
        right = {
            "iss": self.issuer,
            "aud": "penstock",
            "sub": "1",
            "exp": now + 60,
            "iat": now,
            "nonce": self.nonce,
            "preferred_username": "eve",
            "groups": ["platform"],
        }
        return self.claims(right)

    def signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)

    def forged(self, claims: dict[str, Any]) -> str:
        """With a key that has the name of the right one."""
        return jwt.encode({"alg": "RS256", "kid": "good"}, claims, self.other)

    def with_public_key(self, claims: dict[str, Any]) -> str:
        """HS256, with the public key as the secret: everybody has it."""
        text = f"{_part({'alg': 'HS256', 'kid': 'good'})}.{_part(claims)}"
        made = hmac.new(self.key.as_pem(private=False), text.encode(), hashlib.sha256).digest()
        return f"{text}.{base64.urlsafe_b64encode(made).decode().rstrip('=')}"

    def unsigned(self, claims: dict[str, Any]) -> str:
        return ".".join(_part(one) for one in ({"alg": "none", "typ": "JWT"}, claims)) + "."

    def changed(self, claims: dict[str, Any]) -> str:
        """Signed, and then made into somebody else's."""
        head, _, signature = self.signed(claims).split(".")
        return f"{head}.{_part({**claims, 'preferred_username': 'root'})}.{signature}"

    def __enter__(self) -> Liar:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def _part(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


def half_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:16]).decode().rstrip("=")
