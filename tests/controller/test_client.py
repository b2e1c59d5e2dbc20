"""The client over real HTTP: verbs, pages, errors, back-pressure, credentials."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.controller.objects import Write
from penstock.kubernetes import client as client_module
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.credentials import TokenFile
from tests.controller.conftest import THINGS
from tests.controller.fake_api import FakeApi, Fault, names, thing, wait_for


def test_create_get_patch_and_delete(api: FakeApi, client: Client) -> None:
    made = client.create(THINGS, "ns", thing("a"))
    assert made["kind"] == "Thing"
    assert client.get(THINGS, "ns", "a")["metadata"]["uid"] == made["metadata"]["uid"]
    client.patch(THINGS, "ns", "a", {"spec": {"x": 1}})
    client.patch(THINGS, "ns", "a", [{"op": "add", "path": "/spec/y", "value": 2}], kind="json")
    client.patch(THINGS, "ns", "a", {"status": {"z": 3}}, subresource="status")
    found = client.found(THINGS, "ns", "a")
    assert found is not None
    assert (found["spec"], found["status"]) == ({"x": 1, "y": 2}, {"z": 3})
    client.delete(THINGS, "ns", "a")
    assert client.found(THINGS, "ns", "a") is None


def test_a_patch_of_an_older_version_is_a_conflict(api: FakeApi, client: Client) -> None:
    old = client.create(THINGS, "ns", thing("a"))["metadata"]["resourceVersion"]
    client.patch(THINGS, "ns", "a", {"spec": {"x": 1}}, version=old)
    with pytest.raises(ApiError) as caught:
        client.patch(THINGS, "ns", "a", {"spec": {"x": 2}}, version=old)
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    with pytest.raises(ApiError) as caught:
        client.patch(THINGS, "ns", "a", [{"op": "add", "path": "/spec/y", "value": 2}], kind="json", version=old)
    assert caught.value.code == 422


def test_lists_come_in_pages(api: FakeApi, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAGE", 3)
    for number in range(8):
        api.put(THINGS, thing(f"t{number}", labels={"odd": ""} if number % 2 else {}))
    listing = client.list(THINGS)
    assert names(listing.items) == [f"t{number}" for number in range(8)]
    assert listing.version == str(api.version)
    assert api.asked("GET", "limit=3") == 3
    assert names(client.list(THINGS, selector="odd").items) == ["t1", "t3", "t5", "t7"]
    assert client.list(THINGS, "elsewhere").items == []


def test_a_list_that_the_server_forgets_between_two_pages_is_begun_anew(
    api: FakeApi, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PAGE", 3)
    for number in range(5):
        api.put(THINGS, thing(f"t{number}"))
    api.faults.append(Fault(lambda method, path: "continue=" in path, 410, "Expired"))
    assert len(client.list(THINGS).items) == 5


def test_a_busy_server_is_asked_again_after_the_time_that_it_names(api: FakeApi) -> None:
    waits: list[float] = []
    with Client(api.connection(), sleep=waits.append) as client:
        api.faults += [
            Fault(lambda method, path: True, 429, headers={"Retry-After": "3"}, times=2),
            Fault(lambda method, path: True, 503, headers={"Retry-After": "1"}),
        ]
        client.create(THINGS, "ns", thing("a"))
        assert waits == [3.0, 3.0, 1.0]
        # Without a Retry-After nobody knows whether it was carried out.
        api.faults.append(Fault(lambda method, path: True, 503, "ServiceUnavailable"))
        with pytest.raises(ApiError) as caught:
            client.get(THINGS, "ns", "a")
        assert (caught.value.code, caught.value.reason, caught.value.retry_after) == (503, "ServiceUnavailable", None)
        # Patience ends.
        api.faults.append(Fault(lambda method, path: True, 429, headers={"Retry-After": "1000"}))
        with pytest.raises(ApiError) as caught:
            client.get(THINGS, "ns", "a")
        assert caught.value.retry_after == 1000


def test_a_server_that_is_not_there(api: FakeApi, client: Client) -> None:
    assert client.server_version()["gitVersion"].startswith("v1")
    api.stop()
    with pytest.raises(ApiError) as caught:
        client.get(THINGS, "ns", "a")
    assert caught.value.unreachable
    assert "cannot be reached" in str(caught.value)
    api.start()
    assert client.found(THINGS, "ns", "a") is None


def test_a_watch_tells_what_happens_and_can_be_stopped_by_another_thread(api: FakeApi, client: Client) -> None:
    start = client.list(THINGS).version
    with client.watch(THINGS, start) as stream:
        events = []

        def read() -> None:
            try:
                events.extend((event["type"], event["object"]["metadata"]["name"]) for event in stream)
            except ApiError as error:
                events.append(("end", error.code))

        reader = threading.Thread(target=read)
        reader.start()
        api.put(THINGS, thing("a"))
        api.put(THINGS, thing("a"))
        api.remove(THINGS, "ns", "a")
        wait_for(lambda: api.asked("GET", "watch=true"))
        stream.stop()
        reader.join(5)
        assert not reader.is_alive()
    assert [event for event in events if event[0] != "end"] in (
        [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")][:count] for count in range(4)
    )


def test_a_token_in_a_file_is_read_again_when_it_is_refused(api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    api.tokens = {"Bearer one"}
    with Client(api.connection(source=TokenFile(file))) as client:
        client.server_version()
        file.write_text("two\n")
        api.tokens = {"Bearer two"}
        client.server_version()
        api.tokens = {"Bearer three"}
        with pytest.raises(ApiError) as caught:
            client.server_version()
        assert caught.value.code == 401
        file.unlink()  # it is being replaced: the one that we have goes on
        api.tokens = {"Bearer two"}
        client.server_version()


def test_writes_of_a_plan(api: FakeApi, client: Client) -> None:
    client.write(Write("create", THINGS, "ns", "a", {"spec": {"x": 1}}))
    client.write(Write("patch", THINGS, "ns", "a", {"spec": {"x": 2}}))
    assert client.get(THINGS, "ns", "a")["spec"] == {"x": 2}
    client.write(Write("delete", THINGS, "ns", "a", {"preconditions": {"uid": "u"}}))
    assert api.get(THINGS, "ns", "a") is None
