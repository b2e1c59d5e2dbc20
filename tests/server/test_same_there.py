"""Each command that looks or acts says with --server, word for word, what it says on the machine of the server."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock import Client
from penstock.cli.main import run as penstock
from penstock.errors import StoreError, UserError
from penstock.service import stores
from penstock.service.run_records import find
from penstock.store.records import EngineRecord
from tests.server.flows import loud, twice
from tests.server.served import Served, wait_for
from tests.server.test_api import HERE, SHELL
from tests.store.work import batch, write

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: ana, namespace: default}
spec: {clusterQueue: team}
"""
HOLDS = """
apiVersion: penstock/v1
kind: Workflow
name: holds
queue: ana
params:
  - {name: place, type: str}
steps:
  - name: hold
    resources: {cpu: 1}
    container: {image: busybox, command: [sh, -c, 'echo begun; while test ! -e "$1"; do sleep 0.05; done; echo ended', sh, "${{ params.place }}"]}
"""
ASKS = """
apiVersion: penstock/v1
kind: Workflow
name: asks
steps:
  - name: ask
    suspend: {}
    outputs: [{name: ok, type: str}, {name: many, type: int, default: 3}]
  - name: say
    needs: [ask]
    container: {image: busybox, command: [echo, "${{ steps.ask.outputs.ok }}", "${{ steps.ask.outputs.many }}"]}
"""


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Terminal:
    def __init__(self, served: Served, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.served = served
        self._capsys = capsys
        patch.setenv("PENSTOCK_TOKEN", served.own)
        patch.setenv("PENSTOCK_HOME", str(served.settings.home))
        patch.setenv("PENSTOCK_STORE", served.settings.store)
        self._patch = patch

    def here(self, *words: str) -> Said:
        self._capsys.readouterr()
        code = penstock(list(words))
        return Said(code, *self._capsys.readouterr())

    def there(self, *words: str, home: Path | None = None) -> Said:
        with self._patch.context() as patch:
            patch.setenv("PENSTOCK_HOME", str(home or self.served.settings.home.parent / "elsewhere"))
            patch.delenv("PENSTOCK_STORE")
            patch.setenv("PENSTOCK_SERVER", self.served.url)
            return self.here(*words)


@pytest.fixture
def terminal(served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(served, capsys, monkeypatch)


@pytest.fixture(scope="module")
def busy(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with a run of each kind: over, failed, with files, in its queue, and one that asks."""
    place = tmp_path_factory.mktemp("place")
    (place / "words.txt").write_text("one\ntwo\n")
    client = Client(served.url, served.own)
    put = served.ask("PUT", "/api/v1/queues", QUEUES.encode(), headers={"Content-Type": "application/yaml"})
    assert put.status == 200, put
    found = {
        "dry": served.submit(params={"many": 5})["run"]["run"],
        "files": client.run(loud, file=place / "words.txt").id,
        "bad": client.run(twice, word="bad").id,
        "again": client.run(twice, word="hey").id,
        "shell": served.submit(SHELL, options=HERE)["run"]["run"],
    }
    stop = place / "stop"
    for name in ("holds", "waits"):
        found[name] = served.submit(HOLDS, options=HERE, params={"place": str(stop)})["run"]["run"]
        if name == "holds":
            wait_for(lambda: served.get(f"runs/{found['holds']}")["tasks"].get("running"))
    served.wait(found["waits"], "queued")
    found["asks"] = served.submit(ASKS, options=HERE)["run"]["run"]
    wait_for(lambda: served.get(f"runs/{found['asks']}")["tasks"].get("suspended"))
    for name in ("dry", "shell"):
        served.wait(found[name])
    yield found
    stop.touch()
    served.wait(found["waits"])


LOOKS = """
ls | ls -o json | ls --state failed | ls --state queued -o json | ls --workflow twice -n 1 | ls --since 1h
show {dry} | show {dry} -o json | show {files} | show {bad} | show {bad} -o json | show {waits} | show {holds} -o json | show {asks}
show {dry} --tree | show {dry} --tree -o json | show {dry} --gantt | show {files} --gantt -o json | show {bad} --events
show {files} --events -o json | show {files}/shout | show {files}/shout -o json | show {files}/shout[1] | show {bad}/shout -o json
show {holds}/hold | show nothing-77 | show {dry}/nowhere | show {dry}/each[99]
logs {files} | logs {files} -o json | logs {files}/shout[0] | logs {bad} --failed | logs {files} --grep two | logs {files} --tail 0
logs {shell} -f | logs {shell} -f -o json | logs {dry} | logs {bad} -f --tail 1 | logs nothing-77
why {waits} | why {waits} -o json | why {waits}/hold | why {holds} | why {asks} | why {dry} | why {bad} -o json | why nothing-77
get {again} | get {again} -o json | get {files} -o json | get {files}/shout -o json | get {bad} | get {files}/nowhere
watch {dry} | watch {bad} | watch {bad} -o json --exit-status
diff {bad} {again} | diff {bad} {again} -o json
queue | queue ls -o json | queue ls -o yaml | queue show team | queue show team -o json | queue show ana | queue show default/ana -o yaml
queue show nowhere | queue history team --since 1h | queue history ana -o json | queue history nowhere | queue what-if team --asks cpu=1
queue what-if ana --tasks 3 --asks cpu=1 --for 30m -o json | queue what-if team --tasks 0 --quota cpu=4 | queue what-if team --asks odd=1
usage | usage --by flow -o json | usage --by queue --person owner | usage --run {files} | usage --run {bad} -o json | usage --since 1h --until 2h
"""


@pytest.mark.parametrize("line", [one.strip() for one in re.split(r"[|\n]", LOOKS) if one.strip()])
def test_what_is_looked_at_looks_the_same(line: str, terminal: Terminal, busy: dict[str, str]) -> None:
    words = line.format(**busy).split()
    here, there = terminal.here(*words), terminal.there(*words)
    for _ in range(4):  # what runs goes on between the two
        if still(here, terminal) == still(there, terminal):
            break
        here, there = terminal.here(*words), terminal.there(*words)
    assert "Traceback" not in here.err and here.code in (0, 2, 3, 4), here
    assert still(here, terminal) == still(there, terminal)
    assert here.out or here.err


def still(said: Said, terminal: Terminal) -> Said:
    """Without what time changes, and where the server keeps its logs, which it does not tell."""
    home = f"{terminal.served.settings.home}/"
    texts = [
        re.sub(r"\b\d+(\.\d+)?( ?(ms|s|min|h)| seconds?|[hm]\d+[ms])\b", "T", text.replace(home, ""))
        for text in said[1:]
    ]
    texts = [re.sub(r'"(seconds|since|until|in|starts_in|would_start_in)": [\d.]+', "T", text) for text in texts]
    texts = [re.sub(r"\d+\.\d+(e-\d+)?", "T", text) if '"hours"' in text else text for text in texts]  # of what runs
    return Said(said.code, *(re.sub(r" +|█+|─+|░+|▏|▎|▍|▌|▋|▊|▉", " ", text) for text in texts))


def test_a_plan_is_of_what_is_there(terminal: Terminal, busy: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "holds.yaml").write_text(HOLDS)
    (tmp_path / "shell.yaml").write_text(SHELL)
    (tmp_path / "queues.yaml").write_text(QUEUES.replace("nominalQuota: 1", "nominalQuota: 3"))
    for line in (
        "holds.yaml -p place=x",
        "holds.yaml -p place=x -o json",
        "shell.yaml",
        "holds.yaml -p place=x --queues queues.yaml",
    ):
        words = re.sub(r"(\w+\.yaml)", rf"{tmp_path}/\1", line).split()
        here, there = terminal.here("plan", *words), terminal.there("plan", *words)
        assert here.code == 0 and still(here, terminal) == still(there, terminal), (here, there)
    assert "waits" in terminal.there("plan", f"{tmp_path}/holds.yaml", "-p", "place=x").out
    done = terminal.there("run", f"{tmp_path}/shell.yaml", "--on", "process")
    made = done.err.partition(" ")[0]
    assert done.code == 0 and f"since {made}" in terminal.there("plan", f"{tmp_path}/shell.yaml", "-o", "json").out


def test_files_come_from_there(terminal: Terminal, busy: dict[str, str], tmp_path: Path) -> None:
    here = terminal.here("get", busy["files"], "-o", str(tmp_path / "a"))
    there = terminal.there("get", busy["files"], "-o", str(tmp_path / "b"))
    assert here.code == there.code == 0 and here.out.replace("/a/", "/b/") == there.out
    assert (tmp_path / "b" / "loud.txt").read_text() == (tmp_path / "a" / "loud.txt").read_text() == "ONE\nTWO"
    assert terminal.there("get", busy["files"], "-o", str(tmp_path / "b")).code == 0  # it is that file
    (tmp_path / "b" / "loud.txt").write_text("mine")
    assert "P582" in terminal.there("get", busy["files"], "-o", str(tmp_path / "b")).err


def test_nothing_is_made_here_to_look_there(terminal: Terminal, busy: dict[str, str], tmp_path: Path) -> None:
    for words in (("ls",), ("show", busy["files"]), ("logs", busy["files"]), ("queue", "ls")):
        assert terminal.there(*words, home=tmp_path / "none").code == 0
    assert not (tmp_path / "none").exists()


def test_runs_are_ended_and_taken_up_from_there(terminal: Terminal, served: Served, tmp_path: Path) -> None:
    slow = SHELL.replace('echo "$1"; test "$1" != bad', 'test -e "$1" || sleep 60')
    run = served.submit(slow, options=HERE, params={"text": str(tmp_path / "ready")})["run"]["run"]
    wait_for(lambda: served.get(f"runs/{run}")["tasks"].get("running"))
    done = terminal.there("cancel", run, "--now")
    assert (done.code, done.out) == (0, f"{run} cancelled\n")
    for verb in ("cancel", "resume"):
        here, there = terminal.here(verb, run), terminal.there(verb, run)
        assert here == there and here.code == 2 and "P413" in here.err
    (tmp_path / "ready").touch()
    again = terminal.there("retry", run)
    assert again.code == 0 and f"✓ {run} done in" in again.err, again
    assert terminal.here("retry", run) == terminal.there("retry", run)
    shown = json.loads(terminal.there("show", run, "-o", "json").out)
    assert shown["state"] == "succeeded" and shown["user"] == "owner"


def test_what_waits_for_somebody_is_resumed_from_there(terminal: Terminal, served: Served, tmp_path: Path) -> None:
    run = served.submit(ASKS, options=HERE)["run"]["run"]
    wait_for(lambda: served.get(f"runs/{run}")["tasks"].get("suspended"))
    for words in (["-p", "ok"], ["-p", "ok=1", "-p", "many=x"], []):
        here, there = terminal.here("resume", f"{run}/ask", *words), terminal.there("resume", f"{run}/ask", *words)
        assert here == there and here.code == 2, (here, there)
    (tmp_path / "text").write_text("from a file")
    done = terminal.there("resume", f"{run}/ask", "-p", f"ok=@{tmp_path}/text")
    assert (done.code, done.out) == (0, "resumed ask\n")
    served.wait(run)
    assert terminal.there("logs", run).out == "from a file 3\n"
    assert terminal.here("resume", f"{run}/ask") == terminal.there("resume", f"{run}/ask")


def test_queues_are_changed_from_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queues.yaml").write_text(QUEUES)
    (tmp_path / "wrong.yaml").write_text(QUEUES.replace("plain", "") + "\n---\nkind: Nothing\n")
    lines = [
        f"queue apply {tmp_path}/queues.yaml",
        f"queue apply {tmp_path}/queues.yaml -o json",
        f"queue apply {tmp_path}/wrong.yaml",
        "queue drain team",
        "queue resume team -o json",
        "queue drain --hold default/ana",
        "queue drain nowhere",
        "queue ls",
        "queue delete nowhere",
        "queue delete ana",
        "queue delete --all -o json",
        "queue delete --all",
        "queue ls",
        "queue drain team",
    ]
    said: dict[str, list[Said]] = {"here": [], "there": []}
    for way, answers in said.items():
        with Served(tmp_path / way / ".penstock", worker=False) as served:
            terminal = Terminal(served, capsys, monkeypatch)
            for line in lines:
                call = terminal.here if way == "here" else terminal.there
                found = call(*line.split())
                place = served.url if way == "there" else str(served.settings.home)
                answers.append(Said(found.code, found.out, found.err.replace(place, "STORE")))
    for line, here, there in zip(lines, said["here"], said["there"], strict=True):
        assert re.sub(r"  in     \S+\n", "", here.err) == re.sub(r"  in     \S+\n", "", there.err), line
        assert here[:2] == there[:2], line
    assert [one.code for one in said["there"]] == [0, 0, 2, 0, 0, 0, 4, 0, 4, 0, 0, 0, 0, 4]


def test_what_is_printed_and_drawn_there_comes_as_it_happens(
    terminal: Terminal, served: Served, tmp_path: Path
) -> None:
    steps = "echo one; while test ! -e $1/a; do sleep 0.02; done; echo two; while test ! -e $1/b; do sleep 0.02; done"
    text = SHELL.replace('echo "$1"; test "$1" != bad', steps)
    run = served.submit(text, options=HERE, params={"text": str(tmp_path)})["run"]["run"]
    lines: list[str] = []
    client = Client(served.url, served.own).open_run(run)
    for task, line in client.follow_logs():
        lines.append(f"{task}: {line}")
        (tmp_path / ("a" if len(lines) == 1 else "b")).touch()  # it goes on only when what it printed has been heard
    assert lines == ["say: one", "say: two"]
    assert terminal.there("watch", run, "--exit-status").code == 0


def test_a_run_whose_worker_is_gone_is_lost_there_too(
    terminal: Terminal, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.store import liveness

    slow = SHELL.replace('echo "$1"; test "$1" != bad', "sleep 60")
    run = served.submit(slow, options=HERE)["run"]["run"]
    served.wait(run, "running")
    with stores.open_or_create(served.settings) as store:
        [mine] = [one for one in store.peers.engines() if one.id == find(store, run).engine]
    alive = liveness.alive

    def told(one: EngineRecord) -> bool | None:
        """Only the server's machine can tell."""
        if one.id != mine.id:
            return alive(one)
        return False if threading.current_thread().name.startswith("store-") else None

    monkeypatch.setattr(liveness, "alive", told)
    assert terminal.there("show", run).out.startswith(f"{run}  lost")
    monkeypatch.undo()
    served.ask("POST", f"/api/v1/runs/{run}/cancel", {"now": True})
    served.wait(run, "cancelled")


def test_a_server_of_another_version_is_named(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.service import remote_store

    monkeypatch.setattr(remote_store, "known", list)
    said = terminal.there("ls")
    assert said.code == 1 and "P970" in said.err and not said.out


def test_a_store_elsewhere_is_only_read(served: Served) -> None:
    settings = replace(served.settings, server=f"{served.url}/login?token={served.own}")
    with stores.open_existing(settings) as store:
        assert store.runs.newest(workflow="of nobody") == []
        for change in (
            lambda: store.runs.request(1, "cancel", {}),
            lambda: store.runs.release(1, "x", "stopped"),
            lambda: store.peers.forget("x"),
            lambda: store.queues.put_queue_objects([]),
        ):
            with pytest.raises(StoreError, match="P971"):
                change()
        with pytest.raises(UserError, match="P946"):
            store.tokens.all()


def test_a_run_that_was_interrupted_is_listed_there_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Served(tmp_path / ".penstock", worker=False) as served:
        run = served.submit()["run"]["run"]
        with stores.open_or_create(served.settings) as store:
            found = find(store, run)
            assert store.runs.take(found.number, "gone", None)
            write(store, batch(found.number, [2], "stopped"), "gone")
            assert store.runs.release(found.number, "gone", "stopped")
        terminal = Terminal(served, capsys, monkeypatch)
        said = terminal.there("ls")
        assert said.code == 0 and run in said.out, said
        assert said == terminal.here("ls")
