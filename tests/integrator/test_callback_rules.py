"""The pure parts of callbacks: which addresses are asked, how long is waited, what answers mean, what is sent, what is checked."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import AnswerRule, Callback, Workflow, secret, task, workflow
from penstock.errors import UserError
from penstock.expressions.parse import Expr
from penstock.graph import codec
from penstock.graph.callback import CallbackRetry
from penstock.graph.check import check, errors
from penstock.plan.diff import diff
from penstock.plan.make import make
from penstock.plan.merge import merge
from penstock.service import conversion, workflows
from penstock.service.callbacks import guard
from penstock.service.callbacks.answers import FATAL, RETRY, SUCCESS, ReceiverAnswer, judge, retry_after
from penstock.service.callbacks.backoff import delay
from penstock.service.callbacks.render import EndedRun, passes, request_of, sealed, signature

# -- guard ------------------------------------------------------------------------------------------------------------

OPEN = ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
CLOSED = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *(
        "169.254.169.254",
        "100.64.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "224.0.0.1",
        "255.255.255.255",
        "192.0.0.192",
    ),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:127.0.0.1"),
    *("::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:7f00:1::", "2001:0:7f00:1::", "x"),
]


@pytest.mark.parametrize("address", OPEN)
def test_the_open_internet_is_open(address: str) -> None:
    assert guard.AddressGuard().refusal("h", address) == ""


@pytest.mark.parametrize("address", CLOSED)
def test_everything_else_is_closed(address: str) -> None:
    assert guard.AddressGuard().refusal("h", address) != ""


@given(st.ip_addresses(v=4))
def test_an_address_of_ipv4_is_judged_the_same_however_it_is_written(address: ipaddress.IPv4Address) -> None:
    number, plain = int(address), guard.AddressGuard()
    closed = bool(plain.refusal("h", str(address)))
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        assert closed
    for form in (0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80):
        assert bool(plain.refusal("h", str(ipaddress.IPv6Address(form)))) == closed
    assert guard.parse([f"{address}/32"]).refusal("h", f"::ffff:{address}") == ""


def test_the_operator_lists_addresses_networks_and_names() -> None:
    listed = guard.parse(["10.1.0.0/16", "127.0.0.1", "hooks.internal", "*.corp.example", "fd00::/8"])
    for host, address in (
        ("a", "10.1.2.3"),
        ("localhost", "127.0.0.1"),
        ("Hooks.Internal.", "192.168.0.9"),
        ("x.corp.example", "10.9.9.9"),
        ("b", "fd00::1"),
    ):
        assert listed.refusal(host, address) == ""
    for host, address in (
        ("a", "10.2.0.1"),
        ("localhost", "127.0.0.2"),
        ("xhooks.internal", "192.168.0.9"),
        ("corp.example", "10.9.9.9"),
        ("x.corp.example.evil", "10.9.9.9"),
    ):
        assert listed.refusal(host, address)


@given(st.text(max_size=30))
def test_a_list_is_read_or_refused(text: str) -> None:
    try:
        found = guard.parse([text])
    except ValueError as error:
        assert str(error) == text
    else:
        assert found.names or found.networks


# -- back-off ---------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 100),
    st.floats(0.001, 1e5),
    st.floats(1, 1000),
    st.floats(0.001, 6e5),
    st.integers(1, 120),
    st.floats(0, 1),
    st.none() | st.floats(0, 1e15),
)
def test_a_wait_is_never_longer_than_the_longest_and_ends(
    attempts: int, initial: float, factor: float, longest: float, made: int, draw: float, asked: float | None
) -> None:
    retry = CallbackRetry(attempts=attempts, initial=initial, factor=factor, longest=longest)
    found = delay(retry, made, draw, asked)
    assert (found is None) == (made >= attempts)
    if found is not None:
        assert 0 <= found <= longest
        assert asked is None or found >= min(asked, longest)
        longer = delay(retry, made + 1, draw, asked)
        assert longer is None or longer >= found * 0.999999


# -- answers ----------------------------------------------------------------------------------------------------------


@given(st.integers(100, 599), st.binary(max_size=50))
def test_an_answer_without_rules(status: int, data: bytes) -> None:
    found = judge((), ReceiverAnswer(status, {}, data), 0.0)
    wanted = SUCCESS if 200 <= status < 300 else RETRY if status >= 500 or status in (408, 425, 429) else FATAL
    assert found.then == wanted and (found.error == "") == (wanted == SUCCESS)


def test_the_first_rule_that_fits_counts() -> None:
    rules = (
        AnswerRule(then="success", status=(409,), when=Expr.of("answer.body.code == 'known'")),
        AnswerRule(then="fatal", status=("500-503",), when=Expr.of("'x-final' in answer.headers")),
        AnswerRule(then="retry", status=("4xx",)),
    )
    for answer, wanted in (
        (ReceiverAnswer(409, {}, b'{"code": "known"}'), SUCCESS),
        (ReceiverAnswer(409, {}, b"no JSON"), RETRY),
        (ReceiverAnswer(502, {"x-final": "1"}, b""), FATAL),
        (ReceiverAnswer(504, {"x-final": "1"}, b""), RETRY),
        (ReceiverAnswer(404, {}, b""), RETRY),
        (ReceiverAnswer(302, {}, b""), FATAL),
    ):
        assert judge(rules, answer, 0.0).then == wanted, answer


def test_when_to_come_again() -> None:
    assert retry_after("120", 0.0) == 120.0
    assert retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 20.0) == 40.0
    assert retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 100.0) == 0.0
    assert [retry_after(text, 0.0) for text in ("", "soon", "-3", "1e9", "٣")] == [None] * 5


# -- requests ---------------------------------------------------------------------------------------------------------

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(plain, st.text(max_size=30), st.sampled_from(["succeeded", "failed"]))
def test_what_is_sent_is_what_the_run_gave(value: object, error: str, state: str) -> None:
    run = EndedRun(id="one-1", workflow="one", state=state, error=error, outputs={"x": value})
    callback = Callback(name="tell", url="https://example.org/a")
    request = request_of(callback, run, "key")
    first, second = sealed(request, {}, 5.0), sealed(request, {}, 9.0)
    assert first == second and first.data is not None
    try:
        sent = json.loads(first.data)
    except UnicodeDecodeError:
        raise AssertionError("not UTF-8") from None
    assert sent["outputs"] == {"x": value} or "\ud800" <= max(repr(value)) <= "\udfff"
    assert (sent["state"], first.headers["Idempotency-Key"]) == (state, "key")
    assert passes(callback, run)


def test_a_signature_is_of_the_time_and_the_body() -> None:
    made = {signature("k", at, body) for at in (1, 2) for body in (b"a", b"b")} | {signature("l", 1, b"a")}
    assert len(made) == 5 and all(one.startswith("t=") and len(one.split("v1=")[1]) == 64 for one in made)


# -- as authors write them --------------------------------------------------------------------------------------------


def document(**callback: object) -> str:
    return json.dumps(
        {
            "apiVersion": "penstock/v1",
            "kind": "Workflow",
            "name": "one",
            "params": [{"name": "p", "type": "str"}],
            "steps": [{"name": "a", "script": {"source": "true"}}],
            "callbacks": [{"name": "tell", "url": "https://example.org", **callback}],
        }
    )


@pytest.mark.parametrize(
    "callback, code, where",
    [
        ({"url": "ftp://x"}, "P521", "callbacks.tell.url"),
        ({"url": "https://me:pw@example.org"}, "P521", "callbacks.tell.url"),
        ({"url": "https://example.org:99999/"}, "P521", "callbacks.tell.url"),
        ({"on": ["done"]}, "P233", "callbacks.tell.on"),
        ({"on": []}, "P521", "callbacks.tell.on"),
        ({"method": "HEAD"}, "P233", "callbacks.tell.method"),
        ({"timeout": 600}, "P521", "callbacks.tell.timeout"),
        ({"retry": {"attempts": 1000}}, "P521", "callbacks.tell.retry.attempts"),
        ({"retry": {"factor": 0.5}}, "P521", "callbacks.tell.retry.factor"),
        ({"headers": {"a b": "c"}}, "P521", "callbacks.tell.headers"),
        ({"headers": {"Host": "c"}}, "P521", "callbacks.tell.headers"),
        ({"secret": "text"}, "P521", "callbacks.tell.secret"),
        ({"url": "https://${{ secrets.T }}"}, "P522", "callbacks.tell.url"),
        ({"body": "${{ secrets.T + 'x' }}"}, "P522", "callbacks.tell.body"),
        ({"body": "${{ steps.a.outputs.x }}"}, "P522", "callbacks.tell.body"),
        ({"body": "${{ outputs.nope }}"}, "P522", "callbacks.tell.body"),
        ({"body": "${{ run.nope }}"}, "P522", "callbacks.tell.body"),
        ({"filter": "item.x"}, "P522", "callbacks.tell.filter"),
        ({"answers": [{"then": "maybe"}]}, "P233", "callbacks.tell.answers[0].then"),
        ({"answers": [{"then": "retry", "status": ["6xx"]}]}, "P521", "callbacks.tell.answers[0].status"),
        ({"answers": [{"then": "retry", "when": "run.id == ''"}]}, "P522", "callbacks.tell.answers[0].when"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(callback: dict[str, object], code: str, where: str) -> None:
    found = errors(codec.from_text(document(**callback)))
    assert [(one.code, one.where) for one in found] == [(code, where)], found


def test_a_callback_is_written_and_read_again() -> None:
    given = codec.from_text(
        document(
            on=["failed"],
            items="${{ [1, 2] }}",
            filter="item > params.p.size()",
            headers={"A": "Bearer ${{ secrets['db/token'] }}"},
            body={"x": "${{ run.id }}"},
            secret="${{ secrets.K }}",
            answers=[{"then": "fatal", "status": [404, "5xx"], "when": "answer.body == 'x'"}],
            retry={"attempts": 3, "initial": 1.5},
            timeout=2,
        )
    )
    assert not errors(given)
    assert codec.from_text(codec.to_yaml(given)).callbacks == given.callbacks
    assert codec.from_text(codec.to_json(given)).callbacks == given.callbacks
    assert codec.to_data(given)["callbacks"][0]["filter"] == "item > params.p.size()"


@task
def rows(n: int) -> list[int]:
    return list(range(n))


CALLBACKS = [
    "https://example.org/all",
    Callback(
        name="each",
        url="https://example.org/${{ run.id }}",
        on="succeeded",  # type: ignore[arg-type]
        items="outputs.result",
        filter="item > 1",  # type: ignore[arg-type]
        headers={"Authorization": f"Bearer {secret('TOKEN')}"},
        secret=secret("KEY"),
    ),
]


@workflow(callbacks=CALLBACKS)
def counted(n: int) -> list[int]:
    return rows(n)


def test_callbacks_in_python() -> None:
    graph = counted.graph
    assert not check(graph)
    first, second = graph.callbacks
    assert (first.name, first.url) == ("url-1", "https://example.org/all")
    assert (second.on, second.filter) == (("succeeded",), Expr.of("item > 1"))
    run = EndedRun(id="counted-1", workflow="counted", state="succeeded", outputs={"result": [1, 2]})
    request = request_of(second, run, "k", 2)
    assert request.url == "https://example.org/counted-1" and request.names == {"KEY", "TOKEN"}
    same = Workflow("counted", [rows.job("rows", n=1)], callbacks=["https://example.org/all"])
    assert [one.url for one in same.graph.callbacks] == ["https://example.org/all"]
    with pytest.raises(UserError, match="P305"):
        Workflow("x", [], callbacks=[3])


def test_plans_that_are_compared_and_merged_say_what_becomes_of_callbacks() -> None:
    with_one = codec.from_text(document())
    without = codec.from_text(json.dumps({**json.loads(document()), "callbacks": []}))
    merged = merge([(with_one, {"p": "x"}), (without, {"p": "x"})], name="both")
    assert not merged.workflow.callbacks and any("callbacks" in note for note in merged.notes)
    assert diff(make(with_one, {"p": "x"}), make(without, {"p": "x"})).workflow == ("callbacks: tell changed",)
    assert merge([(with_one, {"p": "x"})]).workflow.callbacks == with_one.callbacks


def test_a_conversion_to_another_system_says_what_is_lost_and_one_to_python_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(
        document(headers={"A": "Bearer ${{ secrets.T }}"}, filter="run.state == 'failed'")
    )
    for target in ("argo", "tekton"):
        made = conversion.convert(str(tmp_path / "one.yaml"), target)
        assert [one.path for one in made.report.of("lost") if "callbacks" in one.path] == ["callbacks.tell"]
    (tmp_path / "flow.py").write_text(conversion.convert(str(tmp_path / "one.yaml"), "python").text)
    found, _ = workflows.load_with_report(str(tmp_path / "flow.py"))
    assert found.callbacks == codec.from_text((tmp_path / "one.yaml").read_text()).callbacks
