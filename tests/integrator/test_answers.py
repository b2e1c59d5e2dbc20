"""Steps that wait for an answer from outside (T5.4, T5.5): what is answered, when, by whom, and what dies meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Answer, task, workflow
from penstock.errors import UserError
from penstock.graph import codec
from penstock.graph.check import errors
from penstock.service import answers, runs, stores
from penstock.service.answers import AnswerGiven, AnswerTooLate
from penstock.service.hosting import Host
from penstock.service.submission import Submission
from penstock.settings import read
from penstock.store.answers import digest_of
from penstock.store.records import WriteBatch
from penstock.store.sql import open_store
from penstock.testing import VirtualReport, run_virtually
from tests.server.served import Answer as Answered
from tests.server.served import Served, wait_for
from tests.server.test_same_there import QUEUES
from tests.support.engines import kill, processes

ASKS = """
apiVersion: penstock/v1
kind: Workflow
name: asks
params: [{{name: there, type: str}}]
steps:
- name: ask
  script:
    source: 'echo "asked with $PENSTOCK_CALLBACK_TOKEN"; umask 077; echo "$PENSTOCK_CALLBACK_TOKEN" >> "$THERE"{after}'
    env: {{THERE: "${{{{ params.there }}}}"}}
  answer: {answer}
  outputs: [{{name: scenes, type: int}}, {{name: note, type: str, default: none}}]
  {more}
outputs: [{{name: scenes, value: "${{{{ steps.ask.outputs.scenes }}}}"}}]
"""


def asks(answer: str = "{}", more: str = "", after: str = "") -> str:
    return ASKS.format(answer=answer, more=more, after=after)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = request.getfixturevalue("postgres").database() if request.param == "postgresql" else None
    with Served(tmp_path_factory.mktemp("answers") / ".penstock", store=url, log=LOG.append) as found:
        yield found


LOG: list[str] = []


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """Where the step writes its tokens, one for each attempt."""
    return tmp_path / "tokens"


def begun(served: Served, there: Path, document: str, attempt: int = 1, wait: bool = True) -> tuple[str, str]:
    """A run whose step waits, and its token."""
    run = served.submit(document, params={"there": str(there)}, options={})["run"]["run"]
    return run, token_of(served, run, there, attempt, wait)


def token_of(served: Served, run: str, there: Path, attempt: int = 1, wait: bool = True) -> str:
    wait_for(lambda: there.exists() and len(there.read_text().split()) >= attempt, what="a token")
    if wait:
        wait_for(lambda: row_of(served, run)["state"] == "suspended", what="it to wait")
    return there.read_text().split()[attempt - 1]


def row_of(served: Served, run: str) -> Any:
    rows = served.get(f"runs/{run}/tasks?step=ask")["items"]
    return rows[0] if rows else {"state": ""}


def say(served: Served, token: str, status: str, **more: Any) -> Answered:
    return served.ask("POST", f"/callbacks/{token}", {"status": status, **more}, token=None)


def kinds(served: Served, run: str) -> list[str]:
    return [one["kind"] for one in served.get(f"runs/{run}/events")["items"] if one["task"] == "ask"]


# -- T5.4 -------------------------------------------------------------------------------------------------------------


def test_t5_4_success_gives_the_outputs_and_a_second_one_is_refused(served: Served, there: Path) -> None:
    run, token = begun(served, there, asks())
    assert len(token) == 64 and token.isalnum()
    for wrong in ({"scenes": "many"}, {}, {"scenes": 1, "other": 2}):
        refused = say(served, token, "success", outputs=wrong)
        assert (refused.status, refused.data["code"]) == (422, "P535"), wrong
    assert row_of(served, run)["state"] == "suspended"
    assert say(served, token, "heartbeat").status == 200
    assert say(served, token, "success", outputs={"scenes": 12}).status == 200
    for status in ("success", "failure", "heartbeat"):
        second = say(served, token, status, outputs={"scenes": 13})
        assert (second.status, second.data["code"]) == (409, "P533")
    served.wait(run)
    assert served.get(f"runs/{run}/outputs")["outputs"][0]["value"] == 12
    assert kinds(served, run) == ["task.started", "task.suspended", "task.succeeded"]


def test_t5_4_a_failure_is_the_tasks_own_and_a_new_attempt_has_a_new_token(served: Served, there: Path) -> None:
    more = "retry: {limit: 1, backoff: {initial: 0.01}, exceptions: [Busy]}"
    run, first = begun(served, there, asks(more=more))
    assert say(served, first, "failure", error="not a name", message="x").status == 422
    assert say(served, first, "failure", error="Busy", message="later\x00\x1b[31m").status == 200
    second = token_of(served, run, there, 2)
    assert second != first and say(served, first, "success", outputs={"scenes": 1}).status == 409
    assert say(served, second, "failure", error="NoScenes", message="there are none").status == 200
    served.wait(run, "failed")
    with stores.open_existing(served.settings) as store:
        record = store.runs.by_id(run)
        assert record is not None and record.error == "NoScenes: there are none"


def test_t5_4_of_many_answers_at_once_one_counts(served: Served, there: Path) -> None:
    run, token = begun(served, there, asks())
    found: list[tuple[int, int]] = []
    together = threading.Barrier(20)

    def one(number: int) -> None:
        together.wait(30)
        found.append((say(served, token, "success", outputs={"scenes": number}).status, number))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Counter(status for status, _ in found) == {200: 1, 409: 19}
    served.wait(run)
    won = next(number for status, number in found if status == 200)
    assert served.get(f"runs/{run}/outputs")["outputs"][0]["value"] == won


def test_t5_4_late_is_gone(served: Served, there: Path) -> None:
    run, token = begun(served, there, asks("{within: 0.4}"), wait=False)
    served.wait(run, "failed")
    late = say(served, token, "success", outputs={"scenes": 1})
    assert (late.status, late.data["code"]) == (410, "P534")
    with stores.open_existing(served.settings) as store:
        record = store.runs.by_id(run)
        assert record is not None and record.error == "TimeoutError: no answer came within 0.4 s"
    there.unlink()
    run, token = begun(served, there, asks())
    assert served.ask("POST", f"/api/v1/runs/{run}/cancel", {}).status == 202
    served.wait(run, "cancelled")
    assert say(served, token, "heartbeat").status == say(served, token, "success", outputs={"scenes": 1}).status == 410


def test_t5_4_no_sign_of_life_is_a_timeout(served: Served, there: Path) -> None:
    run, token = begun(served, there, asks("{heartbeat: 0.4}"), wait=False)
    served.wait(run, "failed")
    assert say(served, token, "heartbeat").status == 410


def virtually(home: Path, answer: str, signs: list[float], last: AnswerGiven | None) -> VirtualReport:
    """Signs of life so many seconds after the step has begun to wait, then perhaps an answer."""
    tokens: list[str] = []

    def script(order: Any) -> dict[str, Any]:
        tokens.append(order.secrets["callback.token"])
        return {}

    async def meanwhile(engine: Any, live: Any) -> None:
        import asyncio

        while not live.prompts:
            await asyncio.sleep(0.5)
        began = engine.now()
        with open_store(str(home)) as store:
            for number, at in enumerate(signs):
                await asyncio.sleep(began + at - engine.now())
                said = last if last is not None and number == len(signs) - 1 else AnswerGiven(status="heartbeat")
                answers.answer(store, tokens[-1], said, engine.now())

    workflow = codec.from_text(asks(answer))
    return run_virtually(workflow, {"there": "x"}, script=script, meanwhile=meanwhile, home=home)


def test_t5_4_signs_of_life_put_the_end_off_but_not_for_ever(tmp_path: Path) -> None:
    said = AnswerGiven(status="success", outputs={"scenes": 3})
    done = virtually(tmp_path / "a", "{heartbeat: 60}", [50, 100, 150, 200], said)
    assert done.state == "succeeded" and done.outputs == {"scenes": 3}
    silent = virtually(tmp_path / "b", "{heartbeat: 60}", [50, 100], None)
    assert silent.state == "failed" and 159 < silent.seconds < 163
    assert silent.events[-2].data["message"] == "no sign of life for 60 s"
    over = virtually(tmp_path / "c", "{heartbeat: 60, within: 120}", [50, 100], None)
    assert over.state == "failed" and 119 < over.seconds < 123
    assert over.events[-2].data["message"] == "no answer came in time"


# -- engines that die -------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def alone(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment of commands: a store without a server."""
    store = {} if request.param == "sqlite" else {"PENSTOCK_STORE": request.getfixturevalue("postgres_url")}
    return {**os.environ, "PENSTOCK_HOME": str(tmp_path / ".penstock"), "PENSTOCK_JOBS": "1", **store}


def command(env: dict[str, str], *words: str, told: str = "") -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "penstock", *words]
    return subprocess.run(call, env=env, input=told, capture_output=True, text=True, timeout=60)


def killed(env: dict[str, str], tmp_path: Path, there: Path, document: str, last: str) -> str:
    """An engine that was killed when this was the last event of its step. Returns the token."""
    file = tmp_path / "asks.yaml"
    file.write_text(document)
    call = [sys.executable, "-m", "penstock", "run", str(file), "-p", f"there={there}", "--quiet"]
    with subprocess.Popen(call, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as engine:
        settings = read(env, home=env["PENSTOCK_HOME"])
        wait_for(lambda: there.exists() and there.read_text().strip(), what="a token")
        with stores.open_existing(settings) as store:
            wait_for(lambda: any(one.kind == last for one in store.runs.events(1)), what=last)
        kill(engine.pid)
        engine.wait(30)
    return there.read_text().split()[0]


@pytest.mark.slow
def test_t5_4_an_answer_while_no_engine_lives_counts(alone: dict[str, str], tmp_path: Path, there: Path) -> None:
    token = killed(alone, tmp_path, there, asks("{within: 3600}"), "task.suspended")
    assert command(alone, "answer", "-", "-p", "scenes=x", told=token).returncode == 2
    said = command(alone, "answer", "-", "-p", "scenes=7", "-o", "json", told=token)
    assert json.loads(said.stdout) == {"run": "asks-1", "task": "ask", "status": "success"}, said.stderr
    assert "P533" in command(alone, "answer", "-", "--heartbeat", told=token).stderr
    done = command(alone, "resume", "asks-1", "-o", "json")
    assert done.returncode == 0 and '"scenes": 7' in done.stdout, done.stderr
    assert len(there.read_text().split()) == 1  # it was asked once


@pytest.mark.slow
def test_t5_4_the_token_and_the_limit_outlive_the_engine(alone: dict[str, str], tmp_path: Path, there: Path) -> None:
    token = killed(alone, tmp_path, there, asks("{within: 3600}"), "task.suspended")
    settings = read(alone, home=alone["PENSTOCK_HOME"])
    with stores.open_existing(settings) as store:
        row = store.answers.find(token)
        assert row is not None and row.state == "open" and row.until > time.time()
        store.journal.begin()  # an hour later
        sooner = (row.until - 3600, 0.0, row.beat - 3600, row.run, row.task, row.attempt)
        store.journal.flush(WriteBatch(awaited=[sooner]), "")
        store.journal.commit()
        with pytest.raises(AnswerTooLate):  # nobody has looked yet, and it is too late all the same
            answers.answer(store, token, AnswerGiven(status="success", outputs={"scenes": 1}), time.time())
    done = command(alone, "resume", "asks-1", "-o", "json")
    assert done.returncode == 3 and "no answer came within" in done.stdout, done.stderr
    assert len(there.read_text().split()) == 1


@pytest.mark.slow
def test_t5_4_an_answer_to_an_action_that_still_runs_counts(alone: dict[str, str], tmp_path: Path, there: Path) -> None:
    """The engine dies before the action has ended: the action is not run again."""
    token = killed(alone, tmp_path, there, asks(after="; sleep 600"), "task.started")
    assert command(alone, "answer", token, "-p", "scenes=9").returncode == 0
    done = command(alone, "resume", "asks-1", "-o", "json")
    assert done.returncode == 0 and '"scenes": 9' in done.stdout, done.stderr
    assert len(there.read_text().split()) == 1


# -- T5.5 -------------------------------------------------------------------------------------------------------------


def test_t5_5_waiting_holds_no_worker_and_no_quota(served: Served, there: Path, tmp_path: Path) -> None:
    """There is quota for one task: while the first run waits, the second gets it."""
    given = {"Content-Type": "application/yaml"}
    assert served.ask("PUT", "/api/v1/queues", QUEUES.encode(), headers=given).status == 200
    first = f"queue: ana\n{asks(more='resources: {cpu: 1}')}"
    run, token = begun(served, there, first)
    with stores.open_existing(served.settings) as store:
        open_ = [one for one in store.queues.workloads() if one.state != "over"]
        assert not [one for one in open_ if one.run == store.runs.by_id(run).number], open_  # type: ignore[union-attr]
    other = served.submit(first, params={"there": str(tmp_path / "other")}, options={})["run"]["run"]
    theirs = token_of(served, other, tmp_path / "other")
    assert row_of(served, run)["state"] == row_of(served, other)["state"] == "suspended"
    home = served.settings.home
    assert not set(processes(home)) - set(processes(home, workers=True))
    for each, said in ((run, token), (other, theirs)):
        assert say(served, said, "success", outputs={"scenes": 1}).status == 200
        served.wait(each)


# -- who guesses, and who is hostile ------------------------------------------------------------------------------------


def test_guesses_are_refused_and_slowed_down_and_a_good_token_is_not(served: Served, there: Path) -> None:
    run, token = begun(served, there, asks())
    served.server.app.state.guesses._seen.clear()
    near = token[:-2] + ("AA" if token[-2:] != "AA" else "BB")
    found = [say(served, guess, "heartbeat").status for guess in (near, token[:-1], token + "A", "x", *("no",) * 21)]
    assert found == [404] * 20 + [429] * 5
    assert say(served, token, "success", outputs={"scenes": 1}).status == 200
    served.wait(run)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'"success"', 400),
        (b'{"status": "maybe"}', 400),
        (b'{"status": "success", "surprise": 1}', 400),
        (b'{"status": "success", "outputs": [1]}', 400),
        (b'{"status": "success", "outputs": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001, 400),
        (b'{"status": "success", "outputs": {"scenes": NaN}}', 422),
        (b'{"status": "success", "outputs": {"scenes": 1e400}}', 422),
        (b'{"status": "success", "outputs": {"scenes": 1, "note": "\\ud800"}}', 400),
        (b'{"status": "success", "outputs": {"scenes": [1]}}', 422),
        (b'{"status": "failure", "error": ""}', 422),
        (b'{"status": "failure", "error": "' + b"x" * 300 + b'"}', 422),
        (b'{"status": "failure", "message": "' + b"x" * (2 << 20) + b'"}', 413),
        (b"\xff\xfe", 400),
    ],
    ids=range(16),
)
def test_a_body_that_makes_no_sense_changes_nothing(
    served: Served, waiting: tuple[str, str], body: bytes, status: int
) -> None:
    run, token = waiting
    found = served.ask("POST", f"/callbacks/{token}", body, token=None, headers={"Content-Type": "application/json"})
    assert found.status == status, found
    assert row_of(served, run)["state"] == "suspended"
    assert token not in found.text


@pytest.fixture(scope="module")
def waiting(served: Served, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return begun(served, tmp_path_factory.mktemp("waiting") / "tokens", asks())


def test_the_token_is_told_to_the_step_and_to_nobody_else(served: Served, waiting: tuple[str, str]) -> None:
    """Not in the log of the step, the events, the pages, the log of the server, or the store."""
    run, token = waiting
    assert "asked with ***" in served.ask("GET", f"/api/v1/runs/{run}/logs").text
    for path in (f"/api/v1/runs/{run}/events", f"/api/v1/runs/{run}/tasks", f"/api/v1/runs/{run}/why", f"/runs/{run}"):
        found = served.ask("GET", path)
        assert found.status == 200 and token not in found.text, path
    assert say(served, token, "heartbeat").status == 200
    assert any('"/callbacks/***"' in line for line in LOG) and not any(token in line for line in LOG)
    with stores.open_existing(served.settings) as store:
        row = store.answers.find(token)
        assert row is not None and row.digest == digest_of(token) and token not in repr(row)
    for file in served.settings.home.rglob("*"):
        assert not file.is_file() or token.encode() not in file.read_bytes(), file


# -- state machines -----------------------------------------------------------------------------------------------------

MACHINE = """
StartAt: Ask
States:
  Ask:
    Type: Task
    Resource: arn:aws:states:::sqs:sendMessage.waitForTaskToken
    Parameters: {QueueUrl: "q", MessageBody: {there.$: "$.there", token.$: "States.Format('<{}>', $$.Task.Token)"}}
    HeartbeatSeconds: 600
    Catch: [{ErrorEquals: [Refused], ResultPath: $.why, Next: Refused}]
    ResultPath: $.answer
    End: true
  Refused: {Type: Pass, End: true}
---
kind: StateMachineResources
resources:
  sqs:sendMessage: {command: [sh, -c, 'cat "$1"; printf %s "$PENSTOCK_INPUT" > "$THERE"', sh, /dev/null]}
"""


def test_a_task_token_of_a_state_machine_is_answered_in_the_same_way(served: Served, there: Path) -> None:
    document = MACHINE.replace('"$THERE"', f"'\\''{there}'\\''".replace("'\\''", ""))
    run = served.submit(document, params={"input": {"there": str(there)}}, options={})["run"]["run"]
    wait_for(lambda: there.exists() and there.read_text().endswith("}"), what="the message")
    token = json.loads(there.read_text())["MessageBody"]["token"]
    assert token[0] + token[-1] == "<>" and len(token) == 66
    assert say(served, token[1:-1], "success", outputs={"answer": {"ok": True}}).status == 200
    served.wait(run)
    outputs = served.get(f"runs/{run}/outputs")["outputs"]
    assert next(one["value"] for one in outputs if one["task"] is None)["answer"] == {"ok": True}


# -- what can be written ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"suspend": {}, "answer": {}}, "P530"),
        ({"script": {"source": "true"}, "answer": {}, "locks": [{"name": "db"}]}, "P530"),
        ({"script": {"source": "true"}, "answer": {}, "replicas": 2}, "P530"),
        ({"script": {"source": "true"}, "answer": {}, "outputs": [{"name": "a", "path": "a"}]}, "P530"),
        ({"script": {"source": "echo ${{ callback.token }}"}, "answer": {}}, "P531"),
        ({"script": {"source": "true", "env": {"A": "${{ callback.tokens }}"}}, "answer": {}}, "P531"),
        ({"script": {"source": "true", "env": {"A": "${{ callback.token }}"}}}, "P204"),
    ],
)
def test_what_cannot_wait_for_an_answer_is_refused(step: dict[str, Any], code: str) -> None:
    document = {"apiVersion": "penstock/v1", "kind": "Workflow", "name": "w", "steps": [{"name": "a", **step}]}
    assert [one.code for one in errors(codec.from_data(document))] == [code]


def test_a_function_asks_and_gives_what_is_answered_and_is_told_the_address(tmp_path: Path) -> None:
    """The address is that of the settings; the URL is a secret as the token is."""
    told = tmp_path / "url"

    @task(answer=Answer(within="10m", heartbeat=60))
    def ask(there: str) -> int:
        import os
        from pathlib import Path

        Path(there).with_suffix(".new").write_text(os.environ["PENSTOCK_CALLBACK_URL"])
        Path(there).with_suffix(".new").rename(there)
        return -1

    @workflow
    def flow(there: str) -> int:
        return ask(there)

    env = {"PENSTOCK_ADDRESS": "https://penstock.example/", "PENSTOCK_HOME": str(tmp_path / ".penstock")}
    settings = read(env)

    def say_it() -> None:
        wait_for(told.exists)
        start, _, token = told.read_text().rpartition("/")
        assert start == "https://penstock.example/callbacks"
        with stores.open_existing(settings) as store:
            answers.answer(store, token, AnswerGiven(status="success", outputs={"result": 5}), time.time())

    thread = threading.Thread(target=say_it)
    thread.start()
    submission = Submission(flow.graph, {"there": str(told)})
    host = Host(settings)
    hosted = runs.begin(host, submission, submission.pack(settings))
    assert hosted.wait(60)
    thread.join(30)
    host.close()
    with stores.open_existing(settings) as store:
        run = store.runs.by_number(hosted.run.number)
        assert run is not None and run.state == "succeeded" and run.outputs == {"result": 5}


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="P536"):
        read({"PENSTOCK_ADDRESS": "penstock.example"})
