"""Signing in through an OpenID provider: a real one, and one that lies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from axe_core_python.sync_playwright import Axe
from joserfc.jwk import RSAKey
from playwright.sync_api import Browser

from penstock.errors import UserError
from penstock.server.oidc import settings as sign_in_settings
from penstock.server.oidc.claims import groups_of, role_of
from penstock.service import stores, tokens
from tests.server.served import Served
from tests.server.sign_in import ROLES, Liar, ProviderProcess, Visitor, free_port, half_hash, settings_for
from tests.server.test_pages import browser  # noqa: F401

GROUPS = {"ana": ["platform", "science"], "bob": ["science"], "cat": ["cooks"], "dan": []}


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ProviderProcess, Served]]:
    folder, port = tmp_path_factory.mktemp("provider"), free_port()
    url = f"http://127.0.0.1:{port}"
    with ProviderProcess(folder, f"{url}/login/oidc/callback", f"{url}/login", GROUPS) as found:
        home = tmp_path_factory.mktemp("signed-in") / ".penstock"
        with Served(home, worker=False, port=port, sign_in=settings_for(found.issuer, url)) as served:
            yield found, served


@pytest.fixture
def visitor(provider: tuple[ProviderProcess, Served]) -> Iterator[Visitor]:
    found = Visitor(provider[1].url)
    yield found
    found.close()


def whoami(visitor: Visitor) -> Any:
    found = visitor.client.get(f"{visitor.base}/api/v1/whoami", headers={"Accept": "application/json"})
    return found.json() if found.status_code == 200 else found.status_code


def test_one_signs_in_there_and_is_somebody_here(visitor: Visitor, provider: tuple[ProviderProcess, Served]) -> None:
    page = visitor.look_at("/login?next=/queues")
    assert f"Sign in with 127.0.0.1:{provider[0].port}" in page.text and "/login/oidc?next=%2Fqueues" in page.text
    found = visitor.sign_in("ana")
    assert (found.status_code, str(found.request.url)) == (200, f"{visitor.base}/queues"), found.text
    who = whoami(visitor)
    assert (who["person"], who["role"], who["groups"]) == ("ana", "admin", ["platform", "science"])
    rows = provider[1].get("audit")["items"]
    assert any((row["person"], row["verb"], row["status"]) == ("ana", "sign in", 303) for row in rows)


def test_the_groups_decide_on_the_role(visitor: Visitor) -> None:
    visitor.sign_in("bob")
    assert whoami(visitor)["role"] == "submitter"


@pytest.mark.parametrize("person", ["cat", "dan"])
def test_who_may_not_is_told_so(visitor: Visitor, person: str) -> None:
    found = visitor.sign_in(person)
    assert found.status_code == 403 and "P963" in found.text and f"knows you: {person}" in found.text
    assert ("1 group there (cooks)" if person == "cat" else "in no group") in found.text
    assert whoami(visitor) == 401


def test_a_session_can_be_revoked_at_once(visitor: Visitor, provider: tuple[ProviderProcess, Served]) -> None:
    visitor.sign_in("bob")
    token = whoami(visitor)["token"]
    listed = {one["id"]: one for one in provider[1].get("tokens")["items"]}
    assert listed[token]["note"].startswith("signed in at") and listed[token]["expires"] - time.time() < 12 * 3600 + 1
    assert provider[1].ask("DELETE", f"/api/v1/tokens/{token}").status == 204
    assert whoami(visitor) == 401


def test_signing_out_ends_the_session_here_and_offers_to_end_it_there(visitor: Visitor) -> None:
    visitor.sign_in("ana")
    cookies = dict(visitor.client.cookies)
    found = visitor.client.post(f"{visitor.base}/logout")
    assert found.headers["location"] == "/login?left=1"
    page = visitor.look_at("/login?left=1")
    assert "You are signed out here" in page.text and "/o/logout/?client_id=penstock" in page.text
    assert whoami(visitor) == 401
    with_old = visitor.client.get(
        f"{visitor.base}/api/v1/whoami", headers={"Cookie": f"penstock={cookies['penstock']}"}
    )
    assert with_old.status_code == 401  # the cookie that somebody has kept is of no use
    there = page.text.partition('href="')[2]
    while "logout" not in there.partition('"')[0]:
        there = there.partition('href="')[2]
    parted = visitor.client.get(there.partition('"')[0].replace("&amp;", "&"), follow_redirects=False)
    assert parted.status_code in (200, 302), parted.text


def test_signing_out_from_another_site_ends_nothing(visitor: Visitor) -> None:
    visitor.sign_in("ana")
    cookie = visitor.client.cookies["penstock"]
    visitor.client.post(f"{visitor.base}/logout", headers={"Origin": "http://evil.example"})
    found = visitor.client.get(f"{visitor.base}/api/v1/whoami", headers={"Cookie": f"penstock={cookie}"})
    assert found.status_code == 200


def test_an_answer_is_good_once_and_only_for_whom_it_was_made(visitor: Visitor) -> None:
    callback = f"{visitor.base}/login/oidc/callback"
    found = visitor.sign_in("ana", until=callback)
    there = found.headers["location"]
    way = visitor.client.cookies["penstock-way"]
    thief = Visitor(visitor.base)  # has the address, and not the cookie
    assert "has not begun to sign in here" in thief.look_at(there).text
    thief.look_at("/login/oidc")  # begins one of its own: the state is another one
    stolen = thief.look_at(there)
    assert stolen.status_code == 400 and "another sign-in (state)" in stolen.text
    assert whoami(thief) == 401
    assert visitor.look_at(there).status_code == 303 and whoami(visitor)["person"] == "ana"
    again = visitor.client.get(there, headers={"Cookie": f"penstock-way={way}"})
    assert again.status_code == 400 and "has been used" in again.text
    # The provider itself takes a code once: a new sign-in with the old code fails there.
    asked = parse_qs(urlsplit(thief.look_at("/login/oidc").headers["location"]).query)
    code = parse_qs(urlsplit(there).query)["code"][0]
    replayed = thief.look_at(f"/login/oidc/callback?{urlencode({'code': code, 'state': asked['state'][0]})}")
    assert replayed.status_code == 400 and "HTTP 400, invalid_grant" in replayed.text
    thief.close()


def test_a_code_is_of_no_use_without_the_verifier(visitor: Visitor) -> None:
    """PKCE: whoever catches a code, and puts it into a sign-in of its own."""
    found = visitor.sign_in("ana", until=f"{visitor.base}/login/oidc/callback")
    code = parse_qs(urlsplit(found.headers["location"]).query)["code"][0]
    thief = Visitor(visitor.base)
    state = parse_qs(urlsplit(thief.look_at("/login/oidc").headers["location"]).query)["state"][0]
    taken = thief.look_at(f"/login/oidc/callback?{urlencode({'code': code, 'state': state})}")
    assert taken.status_code == 400 and whoami(thief) == 401
    thief.close()


@pytest.mark.parametrize(
    "there", ["//evil.example", "https://evil.example", "/\\evil.example", "/%09x", "javascript:x"]
)
def test_one_ends_up_on_a_page_of_this_server(visitor: Visitor, there: str) -> None:
    found = visitor.sign_in("ana", there=there, until=f"{visitor.base}/login/oidc/callback")
    assert visitor.look_at(found.headers["location"]).headers["location"] == "/"


def test_the_address_of_this_server_is_not_taken_from_the_request(provider: tuple[ProviderProcess, Served]) -> None:
    found = provider[1].ask("GET", "/login/oidc", token=None, headers={"Host": f"localhost:{provider[1].port}"})
    asked = parse_qs(urlsplit(found.headers["location"]).query)
    assert asked["redirect_uri"] == [f"{provider[1].url}/login/oidc/callback"]
    assert asked["code_challenge_method"] == ["S256"] and len(asked["code_challenge"][0]) == 43
    assert "HttpOnly" in found.headers["set-cookie"] and "SameSite=lax" in found.headers["set-cookie"]


def test_a_provider_that_has_new_keys_goes_on_to_be_believed(
    visitor: Visitor, provider: tuple[ProviderProcess, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor.sign_in("ana")  # its keys are known now
    provider[0].stop()
    visitor.client.cookies.clear()
    away = visitor.look_at("/login/oidc")
    assert away.status_code == 303  # its doors are known, too
    provider[0].start()
    monkeypatch.setattr("penstock.server.oidc.provider.PAUSE", 0.0)
    visitor.client.cookies.clear()
    assert visitor.sign_in("ana").status_code == 200 and whoami(visitor)["person"] == "ana"


# -- a provider that lies ---------------------------------------------------------------------------------------------


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[tuple[Liar, Served]]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (
        Liar() as found,
        Served(tmp_path / ".penstock", worker=False, port=port, sign_in=settings_for(found.issuer, url)) as served,
    ):
        yield found, served


def tried(liar: Liar, served: Served) -> tuple[int, str, bool]:
    """(status, text, is one in?)"""
    visitor = Visitor(served.url)
    try:
        left = visitor.look_at("/login/oidc")
        if left.status_code != 303:
            return left.status_code, left.text, False
        asked = {name: values[0] for name, values in parse_qs(urlsplit(left.headers["location"]).query).items()}
        liar.nonce = asked["nonce"]
        found = visitor.look_at(f"/login/oidc/callback?{urlencode({'code': 'c', 'state': asked['state']})}")
        return found.status_code, found.text, isinstance(whoami(visitor), dict)
    finally:
        visitor.close()


def test_what_is_right_is_believed(liar: tuple[Liar, Served]) -> None:
    assert tried(*liar)[0] == 303
    assert len(liar[0].asked["code_verifier"]) == 43 and liar[0].asked["grant_type"] == "authorization_code"
    liar[0].claims = lambda claims: {**claims, "at_hash": half_hash("access"), "aud": ["penstock"]}
    assert tried(*liar)[2]
    now = int(time.time())
    liar[0].claims = lambda claims: {**claims, "exp": now - 3, "iat": now + 3}  # within the skew
    assert tried(*liar)[2]


def test_what_is_wrong_is_not(liar: tuple[Liar, Served]) -> None:
    lies = {
        "wrong issuer": {"iss": "https://evil.example"},
        "wrong audience": {"aud": "somebody"},
        "no audience": {"aud": None},
        "for several, and not for us": {"aud": ["penstock", "other"]},
        "made for another": {"aud": ["penstock", "other"], "azp": "other"},
        "expired": {"exp": int(time.time()) - 60},
        "from the future": {"iat": int(time.time()) + 600},
        "not yet": {"nbf": int(time.time()) + 600},
        "of another sign-in": {"nonce": "other"},
        "without a nonce": {"nonce": None},
        "nobody": {"sub": None},
        "with another access token": {"at_hash": half_hash("other")},
        "expires never": {"exp": None},
        "a time that is none": {"exp": "later"},
    }
    for name, lie in lies.items():
        liar[0].claims = lambda claims, lie=lie: {k: v for k, v in {**claims, **lie}.items() if v is not None}  # type: ignore[misc]
        status, text, inside = tried(*liar)
        assert (status, inside) == (400, False) and "P961" in text, (name, status, text)


def test_what_is_signed_wrongly_is_not_believed(liar: tuple[Liar, Served]) -> None:
    one = liar[0]
    for sign in (one.forged, one.unsigned, one.changed, one.with_public_key, lambda _: "a.b.c", lambda _: ""):
        one.sign = sign
        status, text, inside = tried(*liar)
        assert (status, inside) == (400, False) and "ID token" in text, (sign, status, text)


def test_keys_that_are_not_known_are_asked_for_rarely(liar: tuple[Liar, Served]) -> None:
    assert tried(*liar)[2]
    liar[0].sign = liar[0].forged
    before = liar[0].keys_asked
    assert [tried(*liar)[2] for _ in range(5)] == [False] * 5
    assert liar[0].keys_asked - before <= 1


def test_keys_that_have_changed_are_asked_for(liar: tuple[Liar, Served], monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried(*liar)[2]
    monkeypatch.setattr("penstock.server.oidc.provider.PAUSE", 0.0)
    liar[0].key = RSAKey.generate_key(2048, {"kid": "new"})
    liar[0].sign = liar[0].signed
    assert tried(*liar)[2]


def test_doors_that_are_not_safe_are_not_gone_through(liar: tuple[Liar, Served]) -> None:
    for wrong in (
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": None},
    ):
        liar[0].metadata = wrong
        status, text, inside = tried(*liar)
        assert (status, inside) == (400, False) and "P961" in text, wrong


def test_groups_may_come_from_userinfo_of_the_same_person_only(liar: tuple[Liar, Served]) -> None:
    liar[0].claims = lambda claims: {name: value for name, value in claims.items() if name != "groups"}
    liar[0].userinfo = {"sub": "1", "groups": ["ops"]}
    assert tried(*liar)[2]
    liar[0].userinfo = {"sub": "2", "groups": ["ops"]}
    assert "somebody else" in tried(*liar)[1]


def test_a_provider_that_is_away_keeps_nobody_out_who_has_a_token(tmp_path: Path) -> None:
    sign_in = settings_for(f"http://127.0.0.1:{free_port()}", "http://127.0.0.1:1")
    with Served(tmp_path / ".penstock", worker=False, sign_in=sign_in) as served:
        found = served.ask("GET", "/login/oidc", token=None, headers={"Accept": "text/html"})
        assert found.status == 503 and "P962" in found.text
        assert served.ask("GET", "/", headers=served.browser()).status == 200


def test_without_a_provider_only_tokens_are_good(served: Served) -> None:
    found = served.ask("GET", "/login/oidc", token=None)
    assert (found.status, found.data["code"]) == (404, "P964")


# -- the file, and what claims mean -----------------------------------------------------------------------------------

GOOD = """
issuer: https://id.example.org
client_id: penstock
url: https://penstock.example.org/
roles: {admin: [platform], viewer: ["*"]}
session: 8h
"""


def test_the_file_of_the_provider_is_read_and_its_mistakes_are_all_told(tmp_path: Path) -> None:
    path = tmp_path / "oidc.yaml"
    path.write_text(GOOD)
    found = sign_in_settings.read(path, {"PENSTOCK_OIDC_SECRET": "s"})
    assert (found.session, found.secret, found.callback) == (
        8 * 3600.0,
        "s",
        "https://penstock.example.org/login/oidc/callback",
    )
    assert "'s'" not in repr(found)
    path.write_text(
        "issuer: http://id.example.org\nclient: x\nroles: {boss: [a], admin: b}\nsession: long\nscopes: [profile]\n"
    )
    with pytest.raises(UserError) as caught:
        sign_in_settings.read(path, {})
    said = " | ".join(one.message for one in caught.value.problems)
    for part in ("client is not a setting", "issuer is", "client_id is missing", "url is missing", "has 'boss'"):
        assert part in said, said
    for part in ("roles.admin is not a list", "session is 'long'", "scopes has no openid"):
        assert part in said, said


def test_the_highest_role_counts_and_odd_groups_do_not() -> None:
    assert role_of(ROLES, ["science", "platform"]) == "admin"
    assert role_of(ROLES, ["nothing"]) is None
    assert role_of({**ROLES, "viewer": ("*",)}, []) == "viewer"
    settings = settings_for("https://id.example.org", "https://p.example.org")
    assert groups_of(settings, {"groups": ["a", "b c", "d,e", 7, "", "a"]}) == ("a",)
    assert groups_of(settings, {"groups": "one"}) == ("one",)
    assert groups_of(settings, {}) == ()


def test_a_session_ends(tmp_path: Path) -> None:
    port = free_port()
    sign_in = {"session": 0.2}
    with Liar() as found:
        url = f"http://127.0.0.1:{port}"
        settings = settings_for(found.issuer, url, **sign_in)
        with Served(tmp_path / ".penstock", worker=False, port=port, sign_in=settings) as served:
            assert tried(found, served)[0] == 303
            with stores.open_or_create(served.settings) as store:
                (session,) = store.tokens.all()
            with pytest.raises(tokens.NotSignedIn, match="has expired"):
                tokens.still(session, session.created + 0.21)


# -- as people see it -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 375)])
def test_people_sign_in_and_out_in_a_browser(
    provider: tuple[ProviderProcess, Served],
    browser: Browser,  # noqa: F811
    scheme: Literal["light", "dark"],
    width: int,
) -> None:
    """By the keyboard; the pages on the way pass the audit (WCAG AA by axe-core)."""
    url = provider[1].url
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    tab = context.new_page()

    def checked(name: str) -> None:
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, name
        assert not Axe().run(tab)["violations"], name
        if place := os.environ.get("PENSTOCK_SHOTS"):
            tab.screenshot(path=f"{place}/{name}-{scheme}-{width}.png")

    def enter(person: str) -> None:
        tab.goto(f"{url}/audit")
        checked("sign-in")
        tab.locator("text=Sign in with").focus()
        tab.keyboard.press("Enter")
        tab.fill("input[name=username]", person)
        tab.fill("input[name=password]", "open")
        tab.press("input[name=password]", "Enter")
        tab.wait_for_url(f"{url}/**")

    enter("cat")
    assert "P963" in tab.inner_text("main")
    checked("refused")
    context.clear_cookies()
    enter("ana")
    assert tab.url == f"{url}/audit" and "sign in" in tab.inner_text("table")
    checked("audit")
    tab.click("text=Sign out")
    tab.wait_for_url("**/login?left=1")
    checked("signed-out")
    tab.goto(f"{url}/audit")
    assert "/login" in tab.url
    context.close()
