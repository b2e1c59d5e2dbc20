"""Callbacks: what receivers hear when runs have ended, whatever goes wrong between. T5.1, T5.2 and T5.3 of the acceptance tests."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.breaker import BreakerLimits
from penstock.controller.cluster.certificates import renewed
from penstock.errors import NotFound, RunConflict, UserError
from penstock.expressions.secret import Secret
from penstock.graph.stored import Stored
from penstock.service import callback_records, couriers, runs, stores
from penstock.service.callbacks.delivery import CallbackDelivery
from penstock.service.cleanup import Cleanup
from penstock.service.hosting import Host
from penstock.service.submission import Submission
from penstock.settings import Settings, read
from penstock.store.outbox import LEASE, OutboxEntry
from penstock.store.sql import Store
from tests.integrator.office import Office, workflow
from tests.integrator.receiver import Heard, Hostile, Receiver

RETRY = {"attempts": 5, "initial": 2, "factor": 2, "longest": 60}


def tell(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "tell", "url": f"{url}/hook", "retry": RETRY, **more}


# -- T5.1 -------------------------------------------------------------------------------------------------------------


def test_t5_1_a_receiver_that_fails_twice_gets_it_at_the_third_attempt(office: Office) -> None:
    with Receiver(500, 500) as receiver:
        run = office.ended(workflow([tell(receiver.url)]), {"n": 3})
        office.work()
        assert [office.later(run), office.later(run)] == [2.0, 4.0]
        (row,) = office.rows(run)
        assert (row.state, row.attempts, row.error) == ("done", 3, "")
        assert [(one.attempt, one.at, one.status) for one in office.tries(row)] == [
            (1, 1000.0, 500),
            (2, 1002.0, 500),
            (3, 1006.0, 200),
        ]
        assert {one.key for one in receiver.heard} == {row.key} and len(receiver.heard) == 3
        record = office.store.runs.by_number(run.number)
        assert record is not None and (record.state, record.seq) == ("succeeded", run.seq)


def test_t5_1_an_answer_that_is_fatal_ends_it_at_once(office: Office) -> None:
    answers = [{"then": "fatal", "status": [500], "when": "answer.body.code == 'gone'"}]
    with Receiver(reply=lambda _: (500, {}, b'{"code": "gone"}')) as receiver:
        run = office.ended(workflow([tell(receiver.url, answers=answers)]), {"n": 3})
        office.work()
        (row,) = office.rows(run)
        assert (row.state, row.attempts) == ("dead", 1) and row.error == 'answered 500: {"code": "gone"}'
        record = office.store.runs.by_number(run.number)
        assert record is not None and (record.state, record.seq) == ("succeeded", run.seq)
    with Receiver(400) as receiver:
        run = office.ended(workflow([tell(receiver.url)], name="two"))
        office.work()
        assert [(row.state, row.attempts) for row in office.rows(run)] == [("dead", 1)]


def test_attempts_end(office: Office) -> None:
    with Receiver(*[503] * 9) as receiver:
        run = office.ended(workflow([tell(receiver.url, retry={"attempts": 2})]))
        office.work()
        office.later(run)
        (row,) = office.rows(run)
        assert row.state == "dead" and row.error == "answered 503; that was the last of 2 attempts"
        assert len(receiver.heard) == 2


def test_a_receiver_says_when_to_come_again_and_not_later_than_the_longest_wait(office: Office) -> None:
    waits = iter(["30", "100000"])

    def reply(_: Heard) -> tuple[int, dict[str, str], bytes]:
        return 429, {"Retry-After": next(waits, "1")}, b""

    with Receiver(reply=reply) as receiver:
        run = office.ended(workflow([tell(receiver.url)]))
        office.work()
        assert (office.later(run), office.later(run)) == (30.0, 60.0)


# -- T5.2 -------------------------------------------------------------------------------------------------------------


def test_t5_2_a_delivery_that_dies_before_it_is_recorded_is_made_again_with_the_same_key(
    office: Office, another: Callable[..., Store]
) -> None:
    class Dies(Exception):
        pass

    class Dying:
        kind = "callback"

        def __init__(self, made: CallbackDelivery) -> None:
            self.made = made

        def deliver(self, store: Store, entries: list[OutboxEntry]) -> None:
            def die(_: object) -> int:
                raise Dies

            store.deliveries.record = die  # type: ignore[method-assign]
            self.made.deliver(store, entries)

    with Receiver() as receiver:
        run = office.ended(workflow([tell(receiver.url)]))
        other = another()
        assert not office.another(Dying).round(other)
        assert office.said == ["callback: Dies: "] and [row.state for row in office.rows(run)] == ["new"]
        office.now += LEASE + 1
        office.work()
        (row,) = office.rows(run)
        assert [one.key for one in receiver.heard] == [row.key, row.key]
        assert receiver.heard[0].body == receiver.heard[1].body
        assert (row.state, row.attempts, len(office.tries(row))) == ("done", 1, 1)


KILLED = """
import sys
from penstock.settings import read
from penstock.service import callback_records, stores
settings = read({"PENSTOCK_CALLBACK_HOSTS": "127.0.0.1"}, home=sys.argv[1], store=sys.argv[2])
with stores.open_existing(settings) as store:
    callback_records.deliver(store, settings, print)
"""


@pytest.mark.slow
def test_t5_2_a_process_that_is_killed_while_the_receiver_has_the_request(office: Office, settings: Settings) -> None:
    """kill -9 of a real process, after the receiver has heard and before anything is recorded."""
    process: list[subprocess.Popen[bytes]] = []

    def reply(_: Heard) -> tuple[int, dict[str, str], bytes]:
        if len(receiver.heard) == 1:
            os.kill(process[0].pid, signal.SIGKILL)
            process[0].wait(30)
        return 200, {}, b""

    with Receiver(reply=reply) as receiver:
        office.now = time.time() - 1
        run = office.ended(workflow([tell(receiver.url)]), {"n": 1})
        words = [sys.executable, "-c", KILLED, str(settings.home), settings.store]
        process.append(subprocess.Popen(words))
        assert process[0].wait(60) == -signal.SIGKILL
        (row,) = office.rows(run)
        assert (row.state, row.attempts, office.tries(row)) == ("new", 0, [])
        assert subprocess.run(words, check=True, timeout=60).returncode == 0
        (row,) = office.rows(run)
        assert [one.key for one in receiver.heard] == [row.key, row.key]
        assert (row.state, len(office.tries(row))) == ("done", 1)


# -- T5.3 -------------------------------------------------------------------------------------------------------------


def test_t5_3_a_request_for_each_of_a_thousand_items_that_pass_the_filter(office: Office) -> None:
    """Those of every tenth fail at first: only they are sent again."""
    seen: set[int] = set()

    def reply(heard: Heard) -> tuple[int, dict[str, str], bytes]:
        item = heard.data["id"]
        first = item not in seen
        seen.add(item)
        return (400 if first and item % 100 == 0 else 503 if first and item % 10 == 0 else 200), {}, b""

    each = {
        "items": "${{ outputs.n }}",
        "filter": "item.cloud < 50",
        "body": {"id": "${{ item.id }}", "run": "${{ run.id }}"},
    }
    with Receiver(reply=reply) as receiver:
        office.courier = office.another(limits=BreakerLimits(after=0, floor=1e6, most=1e6))
        items = [{"id": number, "cloud": 100 if number % 2 else 0} for number in range(1000)]
        run = office.ended(workflow([tell(receiver.url, **each)]), {"n": items})
        office.work()
        parent, *rows = office.rows(run)
        assert (parent.state, parent.attempts) == ("done", 0)
        assert [row.data["place"] for row in rows] == list(range(0, 1000, 2))
        assert len({row.key for row in rows}) == 500
        states = {row.data["place"]: row.state for row in rows}
        assert [place for place, state in states.items() if state == "dead"] == list(range(0, 1000, 100))
        late = [place for place, state in states.items() if state == "new"]
        assert late == [place for place in range(0, 1000, 10) if place % 100]
        assert len(receiver.heard) == 500
        office.later(run)
        assert {one.data["id"] for one in receiver.heard[500:]} == set(late) and len(receiver.heard) == 590
        one = next(row for row in rows if row.state == "dead")
        assert callback_records.redeliver(office.store, [one.number], office.now, None) == 1
        office.work()
        assert receiver.heard[-1].key == one.key and len(receiver.heard) == 591
        assert sum(row.state == "dead" for row in office.rows(run)) == 9


def test_items_are_expanded_once_whoever_expands_them(office: Office, another: Callable[..., Store]) -> None:
    with Receiver() as receiver:
        run = office.ended(workflow([tell(receiver.url, items="${{ outputs.n }}")]), {"n": [1, 2, 3]})
        late = another()
        (entry,) = late.outbox.take("callback", _elsewhere(), office.now, 10)
        office.now += LEASE + 1
        office.work()
        CallbackDelivery(office.settings, now=lambda: office.now).deliver(late, [entry])  # it comes to itself
        office.work()
        assert sorted(heard.data["item"] for heard in receiver.heard) == [1, 2, 3]
        assert len(office.rows(run)) == 4


def _elsewhere() -> Any:
    from penstock.store.records import EngineRecord

    return EngineRecord("b" * 32, "elsewhere/1.2/3", 1, "1", 0)


# -- what is sent -----------------------------------------------------------------------------------------------------


def test_what_there_is_to_know_of_a_run(office: Office) -> None:
    with Receiver() as receiver:
        big = Stored("file", "sha256:" + "0" * 64, 5, "a.txt")
        run = office.ended(workflow([tell(receiver.url)]), {"n": big})
        failed = office.ended(workflow([tell(receiver.url)], name="two"), end="failed", error="ValueError: no")
        office.work()
        first, second = sorted((heard.data for heard in receiver.heard), key=lambda data: str(data["run"]))
        assert first == {
            "callback": "tell",
            "run": run.id,
            "workflow": "one",
            "state": "succeeded",
            "error": None,
            "started": 1000.0,
            "ended": 1000.0,
            "outputs": {"n": {"kind": "file", "digest": big.digest, "size": 5, "name": "a.txt"}},
            "lineage": None,
        }
        assert (second["run"], second["state"], second["error"]) == (failed.id, "failed", "ValueError: no")
        assert receiver.heard[0].headers["content-type"] == "application/json"


def test_a_callback_is_sent_on_the_ends_that_it_names(office: Office) -> None:
    with Receiver() as receiver:
        asked = [
            {"name": "good", "url": f"{receiver.url}/good", "on": ["succeeded"]},
            {"name": "bad", "url": f"{receiver.url}/bad", "on": ["failed", "invalid"]},
            {"name": "never", "url": f"{receiver.url}/never", "filter": "run.state == 'cancelled'"},
        ]
        for end in ("succeeded", "failed", "cancelled", "invalid"):
            office.ended(workflow(asked, name=end), end=end)
            office.work()
        assert [heard.path for heard in receiver.heard] == ["/good", "/bad", "/never", "/bad"]


def test_url_method_headers_and_body_are_templates(office: Office) -> None:
    asked = {
        "method": "PUT",
        "headers": {"X-Run": "${{ run.workflow }}/${{ run.state }}"},
        "body": "n is ${{ outputs.n }}",
    }
    with Receiver() as receiver:
        office.ended(
            workflow([{**tell(""), **asked, "url": receiver.url + "/${{ run.state }}?n=${{ outputs.n }}"}]), {"n": 7}
        )
        office.work()
        (heard,) = receiver.heard
        assert (heard.method, heard.path, heard.body) == ("PUT", "/succeeded?n=7", b"n is 7")
        assert heard.headers["x-run"] == "one/succeeded" and heard.headers["content-type"].startswith("text/plain")


def test_large_outputs_are_read_for_those_who_need_them(office: Office) -> None:
    items = [{"id": number, "text": "x" * 100} for number in range(700)]
    blobs = stores.blobs_of(office.settings)
    stored = Stored("json", blobs.put(json.dumps(items).encode()), 80_000, "n")
    with Receiver() as receiver:
        run = office.ended(
            workflow([tell(receiver.url, items="${{ outputs.n }}", filter="item.id < 3")]), {"n": stored}
        )
        office.work()
        assert sorted(heard.data["item"]["id"] for heard in receiver.heard) == [0, 1, 2]
        assert all(row.state == "done" for row in office.rows(run))


def test_what_cannot_be_made_is_given_up_with_the_reason(office: Office) -> None:
    for more, said in (
        ({"items": "${{ outputs.n }}"}, "its items are int and no list"),
        ({"filter": "outputs.n.x > 1"}, "its filter: "),
        ({"filter": "outputs.n"}, "its filter is 3, which is neither true nor false"),
        ({"url": "${{ outputs.n }}"}, "its URL is int and not text"),
        ({"url": "file:///${{ run.id }}"}, "is not a URL of the form http://"),
        ({"headers": {"X": "a\nb${{ run.id }}"}}, "the header X holds a character"),
    ):
        run = office.ended(workflow([{**tell("http://127.0.0.1:1"), **more}]), {"n": 3})
        office.work()
        (row,) = office.rows(run)
        assert row.state == "dead" and said in row.error and row.attempts == 0, row


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_it_is_signed_and_its_secrets_are_nowhere_but_in_the_request(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", "k3y-of-the-hook")
    monkeypatch.setenv("PENSTOCK_SECRET_TOKEN", "t0ken-of-the-hook")
    asked = tell("", headers={"Authorization": "Bearer ${{ secrets.TOKEN }}"}, secret="${{ secrets.KEY }}")
    echo: list[bytes] = []

    def reply(heard: Heard) -> tuple[int, dict[str, str], bytes]:
        echo.append(heard.headers["authorization"].encode())
        return 500, {}, b"you sent " + echo[0]

    with Receiver(reply=reply) as receiver:
        run = office.ended(workflow([{**asked, "url": receiver.url}]))
        office.work()
        (heard,) = receiver.heard
        assert heard.headers["authorization"] == "Bearer t0ken-of-the-hook"
        at, made = (part.partition("=")[2] for part in heard.headers["penstock-signature"].split(","))
        expected = hmac.new(b"k3y-of-the-hook", f"{at}.".encode() + heard.body, hashlib.sha256).hexdigest()
        assert made == expected and at == "1000"
        (row,) = office.rows(run)
        assert row.error == "answered 500: you sent Bearer ***"
        recorded = json.dumps(
            [row, office.tries(row), office.store.runs.document(run.digest), run.options], default=str
        )
        assert "of-the-hook" not in recorded and "secrets.KEY" in recorded
        monkeypatch.delenv("PENSTOCK_SECRET_TOKEN")
        office.later(run)
        (row,) = office.rows(run)
        assert (row.state, row.attempts) == ("new", 2) and "the secret TOKEN is not given" in row.error
        assert len(receiver.heard) == 1


def test_a_secret_that_is_not_given_is_said_when_it_is_submitted(office: Office) -> None:
    with pytest.raises(UserError, match="the callback tell needs the secret KEY") as error:
        office.ended(workflow([tell("http://127.0.0.1:1", secret="${{ secrets.KEY }}")]))
    assert error.value.problems[0].code == "P464" and error.value.problems[0].where == "callbacks.tell.secret"


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
        entries = office.store.outbox.take("callback", _elsewhere(), office.now, 10)
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


# -- the whole way ----------------------------------------------------------------------------------------------------


def test_a_run_tells_of_its_end_before_its_process_goes(settings: Settings) -> None:
    with Receiver(503) as receiver:
        found = workflow(
            [
                tell(receiver.url),
                {**tell(receiver.url), "name": "more", "retry": {**RETRY, "initial": 3000, "longest": 3000}},
            ]
        )
        submission = Submission(found, {})
        functions = submission.pack(settings)
        host = Host(settings)
        hosted = runs.begin(host, submission, functions)
        assert hosted.wait(60)
        host.close()
        with stores.open_existing(settings) as store:
            rows = store.outbox.of_run(hosted.run.number)
            assert len(receiver.heard) >= 2 and [row.attempts > 0 for row in rows] == [True, True]


def test_a_dry_run_tells_nobody(settings: Settings) -> None:
    with stores.open_or_create(settings) as store:
        run = Submission(workflow([tell("http://127.0.0.1:1")]), {}, dry=True).record(store)
        assert "follow" not in run.options


def test_dead_ones_are_listed_delivered_once_more_and_removed_with_their_run(office: Office) -> None:
    with Receiver(400, 400) as receiver:
        run = office.ended(workflow([tell(receiver.url)]))
        other = office.ended(workflow([tell(receiver.url)], name="two"))
        office.work()
        store = office.store
        listed = callback_records.page(store, ["dead"], 10)
        assert [(one.run, one.state, one.error) for one in listed] == [
            (other.id, "dead", "answered 400"),
            (run.id, "dead", "answered 400"),
        ]
        assert callback_records.dead(store, since=office.now + 1) == []
        numbers = callback_records.dead(store, run=run)
        assert callback_records.redeliver(store, numbers, office.now, None, run) == 1
        with pytest.raises(RunConflict, match="P525"):
            callback_records.redeliver(store, numbers, office.now, None)
        with pytest.raises(NotFound, match="P523"):
            callback_records.redeliver(store, numbers, office.now, None, other)
        assert store.maintenance.delete_runs([run.number], 0.0) == (0, 0)  # somebody is still to be told of it
        plan = Cleanup(store, office.settings, office.now + 100, office.now + 50, 0).plan
        assert [one.id for one in plan.runs] == [other.id] and any(
            "penstock callbacks deliver" in one for one in plan.notes
        )
        office.work()
        found = callback_records.one(store, numbers[0])
        assert (found.state, found.attempts) == ("done", 2)
        assert [(one.attempt, one.status) for one in found.tries] == [(1, 400), (2, 200)]
        assert store.maintenance.delete_runs([run.number], 0.0) == (1, 0)
        assert office.rows(run) == [] and store.deliveries.of(numbers[0]) == []


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
            delivery.deliver(office.store, office.store.outbox.take("callback", _elsewhere(), office.now, 10))
        assert asked == ["hooks.test", "hooks.test"] and len(receiver.heard) == 1
        assert receiver.heard[0].headers["host"] == f"hooks.test:{receiver.port}"
        (row,) = office.rows(run)
        assert row.state == "dead" and "hooks.test is 127.0.0.9" in row.error


def test_secrets_in_bodies_are_names_until_they_are_sent() -> None:
    from penstock.graph.callback import Callback
    from penstock.service.callbacks.render import EndedRun, request_of, sealed

    run = EndedRun(id="one-1", workflow="one")
    found = workflow([tell("http://127.0.0.1:1", body={"t": "${{ secrets.T }}"})]).callbacks[0]
    assert isinstance(found, Callback)
    request = request_of(found, run, "key")
    assert request.body == {"t": Secret("", "T", "")} and request.names == {"T"}
    assert sealed(request, {"T": "x"}, 1.0).data == b'{"t":"x"}'
