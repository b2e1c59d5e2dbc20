"""Golden cases of every kind of step, each run by its own backend. Called by test_golden."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from penstock import ContainerJob, ScriptJob, Workflow, WorkflowParam, task, workflow
from tests.golden.stage import Cases, Stage

cases = Cases()
KUBECTL = Path(__file__).parents[1] / "backends" / "stand_in_kubectl.py"


@cases.of("commands")
def commands(stage: Stage) -> None:
    """Containers on the host, scripts, their files, environment and what they print; a called workflow of them."""
    stage.write("given.txt", "from outside\n")
    stage.write(
        "commands.yaml",
        """
apiVersion: penstock/v1
kind: Workflow
name: commands
parallel: 1
params:
- {name: who, type: str, default: you}
- {name: given, type: file}
steps:
- name: contained
  container:
    image: busybox
    command: [sh, -c]
    args: ['cat /data/in.txt; echo "$GREETING" > /data/out.txt; echo 3 > $PENSTOCK_OUTPUTS/n']
    env: {GREETING: "hello ${{ params.who }}"}
  inputs: [{name: file, value: "${{ params.given }}", type: file, path: /data/in.txt}]
  outputs: [{name: n, type: int}, {name: text, type: str, path: /data/out.txt}, {name: kept, type: file, path: /data/out.txt}]
  cache: {enabled: false}  # the path of the file that was given is part of the key
- name: on-the-host
  container: {image: busybox, command: [sh, -c, "echo 1"]}
- name: printed
  script: {source: "echo '[1, 2]'"}
  outputs: [{name: list, type: "list[int]", path: /dev/stdout}]
- name: interpreted
  script:
    command: [sh, -eu]
    source: |
      echo $PENSTOCK_RUN $PENSTOCK_TASK
      echo $PENSTOCK_ATTEMPT
  needs: [printed]
- name: call
  workflow: {name: inner}
  inputs: [{name: n, value: "${{ steps.contained.outputs.n }}"}]
- name: reads
  script: {source: "cat in; echo ${{ steps.contained.outputs.text }} ${{ steps.call.outputs.n }}"}
  inputs: [{name: kept, value: "${{ steps.contained.outputs.kept }}", path: in}]
  outputs: [{name: said, type: str, path: /dev/stdout}]
definitions:
- name: inner
  params: [{name: n, type: int}]
  steps:
  - name: double
    script: {source: "expr ${{ params.n }} '*' 2 > $PENSTOCK_OUTPUTS/n"}
    outputs: [{name: n, type: int}]
  outputs: [{name: n, value: "${{ steps.double.outputs.n }}"}]
outputs:
- {name: said, value: "${{ steps.reads.outputs.said }}"}
- {name: list, value: "${{ steps.printed.outputs.list }}"}
""",
    )
    stage.type("run", "commands.yaml", "-q", "-j", "1", "--on", "container=process", "-p", "given=given.txt")


@task
def numbers(n: int) -> list[int]:
    print(f"numbers below {n}")
    return list(range(n))


@task
def spread(xs: list[int]) -> dict[str, Any]:
    return {"pair": (min(xs), max(xs)), "set": {1, 2}, "large": "x" * 70_000}


@task
def left(x: int) -> Path:
    path = Path(f"left-{x}.txt")
    path.write_text(f"left by {x}\n")
    return path


@task
def read(paths: list[Path], spread: dict[str, Any]) -> str:
    texts = [path.read_text().strip() for path in paths]
    return f"{', '.join(texts)}; {spread['pair']} {len(spread['large'])}"


@workflow
def in_workers(n: int = 3):
    xs = numbers(n)
    found = spread(xs)
    return read([left(x) for x in xs], found)


@cases.of(
    "functions-in-workers",
    by_task="workers take short functions ahead, so starts and ends of a loop interleave as they please",
)
def functions_in_workers(stage: Stage) -> None:
    """Functions in warm workers: what they print, a large value, files, a set."""
    run = stage.run(in_workers, jobs=2)
    assert run.outputs == {"result": "left by 0, left by 1, left by 2; [0, 2] 70000"}


@task
def step_one(x: int) -> int:
    print("one")
    return x + 1


@task
def step_two(x: int) -> int:
    if x > 100:
        raise OverflowError(f"{x} is too much")
    return 2 * x


@workflow
def chain(x: int):
    y = step_two(step_one(x))
    while y < 20:
        y = step_two(y)
    return y


@cases.of("functions-in-a-row")
def functions_in_a_row(stage: Stage) -> None:
    """Functions in workers one after the other, with a while loop; and one that raises."""
    with stage.engine(jobs=1) as submit:
        assert stage.ends(submit(chain, x=1)).outputs == {"result": 32}
        stage.ends(submit(chain, x=200), "failed")


@cases.of("replicas")
def replicas(stage: Stage) -> None:
    """A gang of processes: outputs of the first; when one fails the others are ended."""
    n = [WorkflowParam("n", int)]
    all_of_them = ScriptJob(
        "all",
        "touch here-$PENSTOCK_REPLICA; echo $PENSTOCK_REPLICAS$PENSTOCK_REPLICA > $PENSTOCK_OUTPUTS/n",
        outputs=n,
        replicas=3,
    )
    one_fails = ContainerJob(
        "one-fails",
        "busybox",
        ["sh", "-c", "[ $PENSTOCK_REPLICA = 0 ] && exec sleep 60; exit 5"],
        replicas=2,
        tolerates=["failed"],
    ).after(all_of_them)
    flow = Workflow("replicas", [all_of_them, one_fails], outputs={"n": all_of_them.outputs["n"]})
    run = stage.run(flow, jobs=4, on={"container": "process"})
    assert run.outputs == {"n": 30}
    assert sorted(file.name for file in stage.here.glob("here-*")) == ["here-0", "here-1", "here-2"]


# -- http -------------------------------------------------------------------------------------------------------------------


class Answers(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self._answer({"path": self.path})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        self._answer({"path": self.path, "body": json.loads(body), "token": self.headers.get("x-token")})

    def _answer(self, found: dict[str, Any]) -> None:
        self.asked.append(self.path)
        busy = self.path == "/busy" and self.asked.count("/busy") == 1
        data = json.dumps({**found, "n": self.asked.count(self.path)}).encode()
        self.send_response(503 if busy else 404 if self.path == "/nothing" else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def answering(stage: Stage) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), type("Handler", (Answers,), {"asked": []}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    place = f"127.0.0.1:{server.server_port}"
    stage.names[place] = "<server>"
    try:
        yield f"http://{place}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@cases.of("http")
def http(stage: Stage) -> None:
    """Requests to a server on this machine: outputs, a body, a condition that does not hold, another try, no answer."""
    stage.write(
        "http.yaml",
        """
apiVersion: penstock/v1
kind: Workflow
name: http
parallel: 1
params: [{name: at, type: str}]
steps:
- name: get
  http: {url: "${{ params.at }}/things"}
  outputs: [{name: path, type: str, value: "${{ response.body.path }}"}, {name: status, type: int, value: "${{ response.status }}"}, {name: whole}]
- name: post
  http: {url: "${{ params.at }}/made", method: POST, headers: {x-token: secret}, body: {from: "${{ steps.get.outputs.path }}"}}
  outputs: [{name: body, value: "${{ response.body }}"}]
- name: busy
  needs: [post]
  http: {url: "${{ params.at }}/busy"}
  retry: {limit: 1, backoff: {initial: 0.01, jitter: 0}}
- name: nothing
  needs: [busy]
  http: {url: "${{ params.at }}/nothing"}
  tolerates: [failed]
- name: refused
  needs: [busy]
  http: {url: "${{ params.at }}/things", success_condition: "response.body.n > 5"}
  tolerates: [failed]
outputs: [{name: body, value: "${{ steps.post.outputs.body }}"}]
""",
    )
    with answering(stage) as at:
        stage.type("run", "http.yaml", "-q", "-j", "1", "-p", f"at={at}")


# -- objects of Kubernetes --------------------------------------------------------------------------------------------------


@cases.of("resources")
def resources(stage: Stage) -> None:
    """Objects by a stand-in for kubectl: one that is waited for, one that fails, one that is not there, one that goes."""
    cluster = stage.here / "cluster"
    cluster.mkdir()
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "old"}, "spec": {"parallelism": 2}}
    (cluster / "Job.old.json").write_text(json.dumps({**job, "metadata": {"name": "old", "uid": "1"}}))
    progress = {
        "Job.train": [{"active": 1}, {"succeeded": 1}],
        "Job.bad": [{"failed": 3, "conditions": [{"type": "Failed", "status": "True", "message": "out of luck"}]}],
        "Job.old": [None],
    }
    (cluster / "progress.json").write_text(json.dumps(progress))
    stage.environ |= {"PENSTOCK_KUBECTL": f"{sys.executable} -S -E {KUBECTL}", "STAND_IN": str(cluster)}
    stage.write(
        "resources.yaml",
        """
apiVersion: penstock/v1
kind: Workflow
name: resources
parallel: 1
steps:
- name: train
  resource:
    manifest: {apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {parallelism: 4}}
    success_condition: status.succeeded >= 1
    failure_condition: status.failed > 0
  outputs: [{name: count, type: int, value: "${{ status.succeeded }}"}, {name: name, type: str, value: "${{ metadata.name }}"}]
- name: bad
  needs: [train]
  resource:
    manifest: {apiVersion: batch/v1, kind: Job, metadata: {name: bad}}
    success_condition: status.succeeded >= 1
    failure_condition: status.failed > 2
  tolerates: [failed]
- name: absent
  needs: [train]
  resource: {action: get, manifest: {apiVersion: v1, kind: Pod, metadata: {name: absent}}}
  tolerates: [failed]
- name: goes
  needs: [train]
  resource: {action: delete, manifest: {apiVersion: batch/v1, kind: Job, metadata: {name: old}}}
outputs: [{name: count, value: "${{ steps.train.outputs.count }}"}]
""",
    )
    stage.type("run", "resources.yaml", "-q", "-j", "1")


# -- somebody is waited for -------------------------------------------------------------------------------------------------


@cases.of("suspend")
def suspend(stage: Stage) -> None:
    """A pause, and a question that is answered from another terminal."""
    stage.write(
        "suspend.yaml",
        """
apiVersion: penstock/v1
kind: Workflow
name: suspend
steps:
- name: pause
  suspend: {duration: 0.01}
- name: ask
  needs: [pause]
  suspend: {message: "ship it?"}
  outputs: [{name: answer, type: str}, {name: count, type: int, default: 1}]
- name: ship
  script: {source: "echo ${{ steps.ask.outputs.answer }} ${{ steps.ask.outputs.count }}"}
outputs: [{name: answer, value: "${{ steps.ask.outputs.answer }}"}]
""",
    )
    run = stage.begin("run", "suspend.yaml", "-q", "-j", "1")
    stage.until_state("suspend-1", "ask", "suspended")
    stage.look("somebody is waited for")
    stage.type("resume", "suspend-1/ask", "-p", "answer=yes")
    run.ends()


# -- rehearsed --------------------------------------------------------------------------------------------------------------


@cases.of("rehearsed")
def rehearsed(stage: Stage) -> None:
    """Functions that are made up: what they would give is the empty value of its type, and nothing is kept."""
    stage.run(in_workers, on={"function": "fake"}, jobs=1)
