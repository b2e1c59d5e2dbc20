"""Receivers of callbacks that mean no good, and places where callbacks may not lead."""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.breaker import BreakerLimits
from penstock.controller.cluster.certificates import renewed
from penstock.errors import UserError
from penstock.service import couriers, stores
from penstock.service.callbacks.delivery import CallbackDelivery
from penstock.service.submission import Submission
from penstock.settings import read
from tests.integrator.office import Office, elsewhere, tell, workflow
from tests.integrator.receiver import Heard, Hostile, Receiver

# -- receivers that mean no good --------------------------------------------------------------------------------------


def hang(_: socket.socket, over: threading.Event) -> None:
    over.wait(60)


def drip(found: socket.socket, over: threading.Event) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 10_000:
        found.sendall(bytes([byte]))
        if over.wait(0.02):
            return


def endless(found: socket.socket, over: threading.Event) -> None:
    found.sendall(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not over.is_set():
        found.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def short(found: socket.socket, over: threading.Event) -> None:
    found.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nshort")
    over.wait(60)


def cut(found: socket.socket, _: threading.Event) -> None:
    found.shutdown(socket.SHUT_RDWR)


def nonsense(found: socket.socket, _: threading.Event) -> None:
    found.sendall(b"\x00\x01 nothing like it\r\n\r\n")


def many_headers(found: socket.socket, over: threading.Event) -> None:
    found.sendall(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(5000)))
    over.wait(60)


@pytest.mark.parametrize(
    "deed, state, said",
    [
        (hang, "new", "did not answer in time"),
        (drip, "new", "did not answer in time"),
        (endless, "new", "answered 500: xxx"),
        (short, "done", ""),
        (cut, "new", "closed the connection before its answer was complete"),
        (nonsense, "new", "does not speak HTTP"),
        (many_headers, "new", "does not speak HTTP"),
    ],
)
def test_a_hostile_receiver_takes_no_more_than_its_time(
    tmp_path: Path, deed: Callable[[socket.socket, threading.Event], None], state: str, said: str
) -> None:
    settings = read({"PENSTOCK_CALLBACK_HOSTS": "127.0.0.1"}, home=tmp_path / ".penstock", jobs=1)
    with Hostile(deed) as receiver, stores.open_or_create(settings) as store:
        office = Office(settings, store)
        run = office.ended(workflow([tell(receiver.url, timeout=0.4)]))
        began = time.monotonic()
        office.work()
        assert time.monotonic() - began < 20
        (row,) = office.rows(run)
        assert (row.state, row.attempts) == (state, 1) and said in row.error and len(row.error) < 400
        assert receiver.asked == 1


def test_a_body_that_a_rule_needs_and_that_does_not_come_is_asked_for_again(office: Office) -> None:
    rules = [{"then": "success", "when": "answer.body == 'ok'"}, {"then": "fatal"}]
    with Hostile(short) as receiver:
        run = office.ended(workflow([tell(receiver.url, timeout=0.3, answers=rules)]))
        office.work()
        (row,) = office.rows(run)
        assert row.state == "new" and "the rest of the answer did not come" in row.error


def test_a_receiver_that_fails_again_and_again_is_left_alone_and_others_are_not(office: Office) -> None:
    limits = BreakerLimits(most=1000, floor=1000, after=3, open_for=10, longest=100)
    office.courier = office.another(limits=limits)
    status = [500]
    with Receiver(reply=lambda _: (status[0], {}, b"")) as bad, Receiver() as good:
        asked = [
            tell(bad.url, items="${{ outputs.n }}"),
            {**tell(good.url), "name": "good", "items": "${{ outputs.n }}"},
        ]
        run = office.ended(workflow(asked), {"n": list(range(40))})
        office.work()
        assert len(good.heard) == 40 and 3 <= len(bad.heard) <= 10
        put_off = [row for row in office.rows(run) if row.state == "new" and not row.attempts]
        assert len(put_off) >= 30 and all("left alone for a while" in row.error for row in put_off)
        heard = len(bad.heard)
        office.now += 11
        office.work()
        assert len(bad.heard) == heard + 1  # one probe
        status[0] = 200
        for _ in range(200):
            if not any(row.state == "new" for row in office.rows(run)):
                break
            office.later(run)
        assert all(row.state == "done" for row in office.rows(run))


# -- where it may lead ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "0.0.0.0",
        "2130706433",
        "0x7f.1",
        "[::ffff:127.0.0.1]",
        "10.0.0.1",
        "169.254.169.254",
    ],
)
def test_an_address_that_the_operator_has_not_listed_is_never_asked(tmp_path: Path, host: str) -> None:
    settings = read({}, home=tmp_path / ".penstock", jobs=1)
    with Receiver() as receiver, stores.open_or_create(settings) as store:
        office = Office(settings, store)
        run = office.ended(workflow([tell(f"http://{host}:{receiver.port}")]))
        office.work()
        (row,) = office.rows(run)
        assert row.state == "dead" and "PENSTOCK_CALLBACK_HOSTS" in row.error and receiver.heard == []


def test_a_redirect_is_checked_and_what_is_secret_stays_behind(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET_T", "topsecret")
    with Receiver() as second:
        places = iter([f"http://127.0.0.2:{second.port}/x", f"{second.url}/on", "file:///etc/passwd"])

        def reply(heard: Heard) -> tuple[int, dict[str, str], bytes]:
            return (302 if heard.path == "/plain/hook" else 307), {"Location": next(places)}, b""

        secret = {"headers": {"Authorization": "Bearer ${{ secrets.T }}"}, "secret": "${{ secrets.T }}"}
        with Receiver(reply=reply) as first:
            errors = []
            for base in ("/a", "/b", "/c"):
                run = office.ended(workflow([tell(first.url + base, **secret)]))
                office.work()
                errors.append([(row.state, row.error) for row in office.rows(run)][0])
            assert errors[0][0] == "dead" and "PENSTOCK_CALLBACK_HOSTS" in errors[0][1]
            assert errors[1] == ("done", "") and errors[2][0] == "dead" and "sent on" in errors[2][1]
            (heard,) = second.heard
            assert heard.path == "/on" and heard.data["callback"] == "tell" and heard.key
            assert "authorization" not in heard.headers and "penstock-signature" not in heard.headers
            assert all(one.headers["authorization"] == "Bearer topsecret" for one in first.heard)
            places = iter([f"{second.url}/on"])
            run = office.ended(workflow([tell(f"{first.url}/d", body={"t": "${{ secrets.T }}"})]))
            office.work()
            (row,) = office.rows(run)
            assert row.state == "dead" and "its body holds a secret" in row.error and len(second.heard) == 1
            places = iter([f"{second.url}/on"])
            run = office.ended(workflow([tell(f"{first.url}/plain")]))
            office.work()
            assert [row.error for row in office.rows(run)] == ["answered 302"]


def test_https_is_checked_by_name_and_certificate(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = renewed(None, ["localhost"], datetime.datetime.now(datetime.UTC))
    assert made is not None
    for name, data in (("ca", made.ca), ("crt", made.certificate), ("key", made.key)):
        (tmp_path / name).write_bytes(data)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    with Receiver(tls=tls) as receiver:
        said = []
        for place, (host, trusted) in enumerate((("localhost", False), ("localhost", True), ("127.0.0.1", True))):
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca") if trusted else os.devnull)
            run = office.ended(workflow([tell(f"https://{host}:{receiver.port}")], name=f"n{place}"))
            office.work(office.another())
            said += [(row.state, row.error) for row in office.rows(run)]
        assert [state for state, _ in said] == ["new", "done", "new"]
        assert "the certificate of https://localhost" in said[0][1] and "127.0.0.1" in said[2][1]
        assert [heard.headers["host"] for heard in receiver.heard] == [f"localhost:{receiver.port}"]


def test_a_row_that_cannot_be_made_at_all_holds_up_no_other(office: Office) -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    with Receiver() as receiver:
        run = office.ended(workflow([tell(receiver.url)]), {"n": 1})
        good = office.ended(workflow([tell(receiver.url)], name="two"))
        entries = office.store.outbox.take("callback", elsewhere(), office.now, 10)
        broken = entries[0]._replace(data={**entries[0].data, "place": 0, "item": deep})
        CallbackDelivery(office.settings, now=lambda: office.now).deliver(office.store, [broken, entries[1]])
        assert [heard.data["run"] for heard in receiver.heard] == [good.id]
        (row,) = office.rows(run)
        assert (row.state, row.attempts) == ("new", 1) and "RecursionError" in row.error


def test_a_circle_of_redirects_ends(office: Office) -> None:
    with Receiver(reply=lambda _: (307, {"Location": "/again"}, b"")) as receiver:
        run = office.ended(workflow([tell(receiver.url)]))
        office.work()
        assert "more than 3 times" in office.rows(run)[0].error and len(receiver.heard) == 4


def test_a_list_of_hosts_that_cannot_be_read_is_refused_before_anything_runs(tmp_path: Path) -> None:
    settings = read({"PENSTOCK_CALLBACK_HOSTS": "10.0.0.0/8, 1.2.3"}, home=tmp_path / ".penstock")
    with pytest.raises(UserError, match="P520"):
        Submission(workflow([tell("http://127.0.0.1:1")]), {}).pack(settings)
    with pytest.raises(UserError, match="P520"):
        couriers.Couriers(settings)


def test_a_name_is_looked_up_for_each_connection_and_the_checked_address_is_asked(office: Office) -> None:
    """The name leads to an allowed address at first, and then to one that is not."""
    from penstock.service.callbacks import guard
    from penstock.service.callbacks.sender import CallbackSender

    answers = iter(["127.0.0.1", "127.0.0.9"])
    asked: list[str] = []

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    with Receiver(reply=lambda _: (200, {"Connection": "close"}, b"")) as receiver:
        sender = CallbackSender(guard.parse(["127.0.0.1"]), look_up)
        delivery = CallbackDelivery(office.settings, now=lambda: office.now, sender=sender)
        for place in range(2):
            run = office.ended(workflow([tell(f"http://hooks.test:{receiver.port}")], name=f"n{place}"))
            delivery.deliver(office.store, office.store.outbox.take("callback", elsewhere(), office.now, 10))
        assert asked == ["hooks.test", "hooks.test"] and len(receiver.heard) == 1
        assert receiver.heard[0].headers["host"] == f"hooks.test:{receiver.port}"
        (row,) = office.rows(run)
        assert row.state == "dead" and "hooks.test is 127.0.0.9" in row.error
