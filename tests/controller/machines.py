"""What each engine does with its objects, as small state machines for the model: which pods it makes, when a stage is reached, when a run is over.

They follow docs/ideas/engines.md. A machine does one look at one workflow; the model calls it as often as it likes. A step of a workflow is
`{"name", "pods", "cpu"}`, perhaps with `asks` (what its pods ask for in truth), `says` (how many pods are declared; the toy alone can be wrong), `gang`,
`daemon` and `queues` (Argo alone; of each pod of a gang, the queue that its template names).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.controller.coverage import is_active
from penstock.controller.engine import Engine
from penstock.controller.engines.argo import ENGINE as ARGO
from penstock.controller.engines.argo.nodes import OVER, fnv1a
from penstock.controller.engines.argo.stopping import WORKFLOWS
from penstock.controller.engines.jobset import ENGINE as JOBSET
from penstock.controller.engines.jobset import JOB_SETS
from penstock.controller.engines.tekton import ENGINE as TEKTON
from penstock.controller.engines.tekton.runs import PIPELINE_RUNS, child_names, result_of
from penstock.controller.names import QUEUE, QUEUED
from penstock.controller.objects import Object, holds, is_deleted, labels_of, name_of, part, uid_of
from penstock.kueue.status import seconds, timestamp
from tests.controller.toy_engine.penstock_toy import ENGINE as TOY
from tests.controller.toy_engine.penstock_toy import SEQUENCES

Dict = dict[str, Any]
Step = Mapping[str, Any]
NOTICED = 10.0
"""Seconds after which Argo misses a pod that it has made."""


class Board(Protocol):
    """What a machine needs of the cluster."""

    now: float
    version: int
    objects: dict[tuple[str, str], Dict]

    def add(self, plural: str, obj: Mapping[str, Any]) -> Dict: ...
    def touch(self, obj: Dict) -> None: ...
    def drop(self, plural: str, name: str) -> None: ...
    def end_pod(self, name: str, at_once: bool = False) -> None: ...
    def owned(self, plural: str, owner: Object) -> list[Dict]: ...


class Machine(Protocol):
    engine: Engine
    plural: str

    def document(self, name: str, steps: Sequence[Step]) -> Dict: ...
    def look(self, board: Board, main: Dict) -> None: ...
    def over(self, main: Object) -> bool: ...


def pod_of(owner: Object, name: str, step: Step, index: int, **metadata: Any) -> Dict:
    """As a policy of the API server has it: held."""
    labels = {QUEUED: "q", "step": str(step["name"]), "index": str(index)} | metadata.pop("labels", {})
    resources = {"requests": {"cpu": step.get("asks", step["cpu"])}}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "labels": labels,
            "ownerReferences": [owner_reference(owner)],
            **metadata,
        },
        "spec": {"schedulingGates": [{"name": "penstock/admission"}], "containers": [{"resources": resources}]},
        "status": {"phase": "Pending"},
    }


def owner_reference(owner: Object) -> Dict:
    return {"kind": owner.get("kind"), "name": name_of(owner), "uid": uid_of(owner), "controller": True}


def _container(step: Step) -> Dict:
    return {"name": "main", "image": "x", "resources": {"requests": {"cpu": step["cpu"]}}}


def _phase(pod: Object) -> str:
    return str(part(pod, "status").get("phase"))


class Toy:
    engine: Engine = TOY
    plural = SEQUENCES.plural

    def document(self, name: str, steps: Sequence[Step]) -> Dict:
        return {"apiVersion": SEQUENCES.api, "kind": SEQUENCES.kind, "spec": {"steps": [dict(step) for step in steps]}}

    def over(self, main: Object) -> bool:
        return bool(part(main, "status").get("phase"))

    def look(self, board: Board, main: Dict) -> None:
        done = main.setdefault("status", {}).setdefault("done", {})
        for number, step in enumerate(main["spec"]["steps"]):
            pods = [pod for pod in board.owned("pods", main) if labels_of(pod)["step"] == step["name"]]
            over = set(done.get(step["name"], ()))
            for pod in pods:
                index = int(labels_of(pod)["index"])
                if _phase(pod) == "Succeeded" and index not in over:
                    over.add(index)
                    done[step["name"]] = sorted(over)
                    board.touch(main)
            if number >= main["spec"]["open"]:
                for pod in pods:
                    if is_active(pod):
                        board.end_pod(name_of(pod), at_once=True)
            elif len(over) < step["pods"]:
                there = {int(labels_of(pod)["index"]) for pod in pods}
                for index in set(range(step["pods"])) - over - there:
                    board.add("pods", pod_of(main, f"{name_of(main)}-{step['name']}-{index}", step, index))
            if len(over) < step["pods"]:
                return
        if not main["status"].get("phase"):
            main["status"]["phase"] = "Succeeded"
            board.touch(main)


class Argo:
    """A workflow of groups of steps. Pods are judged also while it is suspended; nothing follows from it then."""

    engine: Engine = ARGO
    plural = WORKFLOWS.plural

    def __init__(self) -> None:
        self.hidden: dict[str, Dict] = {}
        """Nodes that are kept in Argo's database, by uid."""
        self.thoughts: dict[str, Dict] = {}
        """What Argo has found out of a workflow and has not written yet, by uid."""

    def document(self, name: str, steps: Sequence[Step]) -> Dict:
        templates: list[Dict] = [{"name": "main", "steps": [self._group(step) for step in steps]}]
        for step in steps:
            more = {"daemon": True} if step.get("daemon") else {}
            for queue in {*step.get("queues", ()), ""}:
                label = {"metadata": {"labels": {QUEUE: queue}}} if queue else {}
                templates.append({"name": self._template(step, queue), "container": _container(step), **more, **label})
        meta = {"annotations": {"steps": json.dumps([dict(step) for step in steps])}}
        spec = {"entrypoint": "main", "templates": templates}
        return {"apiVersion": WORKFLOWS.api, "kind": WORKFLOWS.kind, "metadata": meta, "spec": spec}

    def _template(self, step: Step, queue: str = "") -> str:
        return f"t-{step['name']}{queue and '-' + queue}"

    def _group(self, step: Step) -> list[Dict]:
        if step.get("gang"):
            own = [self._template(step, queue) for queue in step.get("queues") or [""] * step["pods"]]
            return [{"name": f"{step['name']}-{index}", "template": one} for index, one in enumerate(own)]
        return [{"name": step["name"], "template": self._template(step), "withItems": list(range(step["pods"]))}]

    def over(self, main: Object) -> bool:
        return part(main, "status").get("phase") in ("Succeeded", "Failed", "Error")

    # its nodes, which may be elsewhere

    def hide(self, board: Board, main: Dict) -> None:
        if "nodes" in part(main, "status") and not self.over(main):
            self.hidden[uid_of(main)] = main["status"].pop("nodes")
            main["status"]["offloadNodeStatusVersion"] = "fnv:1"
            board.touch(main)

    def show(self, board: Board, main: Dict) -> None:
        if uid_of(main) in self.hidden:
            main["status"]["nodes"] = self.hidden.pop(uid_of(main)) | main["status"].get("nodes", {})
            del main["status"]["offloadNodeStatusVersion"]
            board.touch(main)

    def _nodes(self, main: Dict) -> Dict:
        found: Dict = self.hidden.get(uid_of(main)) or main["status"].setdefault("nodes", {})
        return found

    # one look

    def think(self, board: Board, main: Dict) -> None:
        """It misses pods, and is slow to write it. If somebody else writes meanwhile, it applies its changes to what is there by then, as Argo does."""
        missed = {} if self.over(main) or "nodes" not in part(main, "status") else self._missed(board, main)
        if missed:
            ends = {"phase": "Error", "message": "pod deleted", "finishedAt": timestamp(board.now)}
            self.thoughts[uid_of(main)] = dict.fromkeys(missed, ends)

    def _missed(self, board: Board, main: Dict) -> list[str]:
        return [
            key
            for key, node in self._nodes(main).items()
            if node.get("type") == "Pod"
            and node["phase"] == "Running"
            and ("pods", self._pod_name(main, node)) not in board.objects
            and board.now - seconds(node["startedAt"]) > NOTICED
        ]

    def look(self, board: Board, main: Dict) -> None:
        status = main.setdefault("status", {})
        if self.over(main):
            return
        for key, change in self.thoughts.pop(uid_of(main), {}).items():
            self._nodes(main).setdefault(key, {}).update(change)
            board.touch(main)
        if not status.get("phase"):
            status["phase"] = "Running"
            board.touch(main)
        else:
            self._judge(board, main)
        if main["spec"].get("suspend"):
            return
        root = self._node(board, main, name_of(main), "Steps", "main")
        (entry,) = [one for one in main["spec"]["templates"] if one["name"] == "main"]
        for number, group in enumerate(entry["steps"]):
            outcome = self._run_group(board, main, number, group)
            if outcome:
                break
        else:
            outcome = "Succeeded"
        if outcome != "Running":
            root["phase"] = status["phase"] = outcome
            for pod in board.owned("pods", main):
                if is_active(pod):
                    board.end_pod(name_of(pod))  # daemons, and what is not needed any more
            board.touch(main)

    def _judge(self, board: Board, main: Dict) -> None:
        missed = self._missed(board, main)
        for key, node in self._nodes(main).items():
            if node.get("type") != "Pod" or node["phase"] in OVER:
                continue
            pod = board.objects.get(("pods", self._pod_name(main, node)))
            phase = "Error" if key in missed else node["phase"]
            if pod is not None and _phase(pod) in ("Succeeded", "Failed", "Running"):
                phase = _phase(pod)
            if phase != node["phase"]:
                self._set(board, main, node, phase)

    def _set(self, board: Board, main: Dict, node: Dict, phase: str) -> None:
        node["phase"] = phase
        if phase in OVER:
            node["finishedAt"] = timestamp(board.now)
        board.touch(main)

    def _node(self, board: Board, main: Dict, name: str, kind: str, template: str = "", **more: Any) -> Dict:
        key = name if name == name_of(main) else f"{name_of(main)}-{fnv1a(name)}"
        nodes: Dict = self._nodes(main)
        if key not in nodes:
            phase = "Pending" if kind == "Pod" else "Running"
            around = {} if name == name_of(main) else {"boundaryID": name_of(main)}
            nodes[key] = {
                "id": key,
                "name": name,
                "displayName": name.partition(".")[2] or name,
                "type": kind,
                "phase": phase,
                "templateName": template,
                "startedAt": timestamp(board.now),
                **around,
                **more,
            }
            board.touch(main)
        found: Dict = nodes[key]
        return found

    def _run_group(self, board: Board, main: Dict, number: int, group: Sequence[Step]) -> str:
        """Empty: it has succeeded, and the next one follows."""
        name = f"{name_of(main)}[{number}]"
        here = self._node(board, main, name, "StepGroup")
        if here["phase"] == "Succeeded":
            return ""
        ends = [self._run_step(board, main, name, step) for step in group]
        outcome = "Running" if "Running" in ends else "Failed" if {"Failed", "Error"} & set(ends) else "Succeeded"
        if outcome != "Running":
            self._set(board, main, here, outcome)
        return "" if outcome == "Succeeded" else outcome

    def _run_step(self, board: Board, main: Dict, group: str, step: Step) -> str:
        name = f"{group}.{step['name']}"
        if step["template"] == "penstock-gate":
            given = {"inputs": {"parameters": step["arguments"]["parameters"]}}
            phase = self._node(board, main, name, "Suspend", "penstock-gate", **given)["phase"]
            return str(phase) if phase in OVER else "Running"
        if "withItems" not in step:
            return self._run_pod(board, main, name, step["template"], int(step["name"].rpartition("-")[2]))
        ends = [self._run_pod(board, main, f"{name}({at}:{at})", step["template"], at) for at in step["withItems"]]
        return "Running" if "Running" in ends else next((one for one in ends if one != "Succeeded"), "Succeeded")

    def _run_pod(self, board: Board, main: Dict, name: str, template: str, index: int) -> str:
        node = self._node(board, main, name, "Pod", template)
        steps = json.loads(main["metadata"]["annotations"]["steps"])
        step = next(
            one for one in steps if template in [self._template(one, queue) for queue in ("", *one.get("queues", ()))]
        )
        if node["phase"] == "Pending" and ("pods", self._pod_name(main, node)) not in board.objects:
            noted = {"workflows.argoproj.io/node-name": name}
            (own,) = [one for one in main["spec"]["templates"] if one["name"] == template]
            labels = {QUEUED: "q"} | part(own, "metadata", "labels")
            board.add("pods", pod_of(main, self._pod_name(main, node), step, index, annotations=noted, labels=labels))
        if step.get("daemon") and node["phase"] == "Running":
            return "Succeeded"  # the steps after it may go on
        return str(node["phase"]) if node["phase"] in OVER else "Running"

    def _pod_name(self, main: Object, node: Object) -> str:
        return f"{name_of(main)}-{node['templateName']}-{fnv1a(node['name'])}"


class Tekton:
    """A pipeline of tasks one after the other; a task of several pods is a matrix."""

    engine: Engine = TEKTON
    plural = PIPELINE_RUNS.plural

    def document(self, name: str, steps: Sequence[Step]) -> Dict:
        tasks = []
        for number, step in enumerate(steps):
            container = _container(step)
            container["computeResources"] = container.pop("resources")
            one: Dict = {"name": step["name"], "taskSpec": {"steps": [container]}}
            if number:
                one["runAfter"] = [steps[number - 1]["name"]]
            if step["pods"] > 1:
                one["matrix"] = {"params": [{"name": "n", "value": [str(at) for at in range(step["pods"])]}]}
            tasks.append(one)
        meta = {"annotations": {"steps": json.dumps([dict(step) for step in steps])}}
        return {
            "apiVersion": PIPELINE_RUNS.api,
            "kind": PIPELINE_RUNS.kind,
            "metadata": meta,
            "spec": {"pipelineSpec": {"tasks": tasks}},
        }

    def over(self, main: Object) -> bool:
        return result_of(main) != ""

    def look(self, board: Board, main: Dict) -> None:
        for run in board.owned("taskruns", main):
            self._task_run(board, run)
        if is_deleted(main) or self.over(main) or main["spec"].get("status"):
            return
        status = main.setdefault("status", {})
        if "pipelineSpec" not in status:
            status |= {"pipelineSpec": main["spec"]["pipelineSpec"], "conditions": [_succeeded("Unknown")]}
            board.touch(main)
        for step in json.loads(main["metadata"]["annotations"]["steps"]):
            outcome = self._task(board, main, step)
            if outcome == "Unknown":
                return
            if outcome == "False":
                break
        else:
            outcome = "True"
        status["conditions"] = [_succeeded(outcome)]
        board.touch(main)

    def _task(self, board: Board, main: Dict, step: Step) -> str:
        names = child_names(name_of(main), step["name"], step["pods"])
        there = {name_of(one): one for one in board.owned("taskruns", main) if name_of(one) in names}
        listed = main["status"].setdefault("childReferences", [])
        known = {one["name"] for one in listed}
        missing = [name for name in names if name not in there]
        if missing and (step["pods"] == 1 or not known.issuperset(names)):
            # Of a matrix one after the other, and then they are named; those of a matrix that are gone are not made again.
            self._create(board, main, step, missing[0], names.index(missing[0]))
        elif not known.issuperset(names):
            listed += [{"kind": "TaskRun", "name": one, "pipelineTaskName": step["name"]} for one in names]
            board.touch(main)
        ends = [result_of(there[name]) if name in there else "" for name in names]
        return "False" if "False" in ends else "True" if all(ends) else "Unknown"

    def _create(self, board: Board, main: Object, step: Step, name: str, index: int) -> None:
        (task,) = [one for one in main["spec"]["pipelineSpec"]["tasks"] if one["name"] == step["name"]]
        meta = {
            "name": name,
            "namespace": "team",
            "labels": {QUEUED: "q", "tekton.dev/pipelineTask": step["name"]},
            "annotations": {"step": json.dumps(dict(step)), "index": str(index)},
            "ownerReferences": [owner_reference(main)],
        }
        spec = {"taskSpec": task["taskSpec"], "status": "TaskRunPending"}
        board.add("taskruns", {"kind": "TaskRun", "metadata": meta, "spec": spec, "status": {}})

    def _task_run(self, board: Board, run: Dict) -> None:
        if is_deleted(run) or run["spec"].get("status") or result_of(run):
            return
        (*pods,) = board.owned("pods", run)
        if not pods:
            step, index = (
                json.loads(run["metadata"]["annotations"]["step"]),
                int(run["metadata"]["annotations"]["index"]),
            )
            board.add("pods", pod_of(run, f"{name_of(run)}-pod", step, index))
            run["status"] = {"conditions": [_succeeded("Unknown")]}
            board.touch(run)
            return
        ended = {"Succeeded": "True", "Failed": "False"}.get(_phase(pods[0]))
        if ended:
            run["status"] = {"conditions": [_succeeded(ended)]}
            board.touch(run)


def _succeeded(status: str) -> Dict:
    return {"type": "Succeeded", "status": status, "reason": status}


class JobSets:
    """A JobSet whose steps wait until the one before is complete, and the controller of Jobs."""

    engine: Engine = JOBSET
    plural = JOB_SETS.plural

    def document(self, name: str, steps: Sequence[Step]) -> Dict:
        jobs = []
        for number, step in enumerate(steps):
            template = {"spec": {"containers": [_container(step)]}}
            spec = {"parallelism": step["pods"], "completions": step["pods"], "template": template}
            one: Dict = {"name": step["name"], "replicas": 1, "template": {"spec": spec}}
            if number:
                one["dependsOn"] = [{"name": steps[number - 1]["name"], "status": "Complete"}]
            jobs.append(one)
        meta = {"annotations": {"steps": json.dumps([dict(step) for step in steps])}}
        spec = {"replicatedJobs": jobs}
        return {"apiVersion": JOB_SETS.api, "kind": JOB_SETS.kind, "metadata": meta, "spec": spec}

    def over(self, main: Object) -> bool:
        return holds(main, "Completed") or holds(main, "Failed")

    def look(self, board: Board, main: Dict) -> None:
        jobs = {str(labels_of(one)["jobset.sigs.k8s.io/replicatedjob-name"]): one for one in board.owned("jobs", main)}
        for job in jobs.values():
            self._job(board, job)
        if is_deleted(main) or self.over(main):
            return
        for step in json.loads(main["metadata"]["annotations"]["steps"]):
            there = jobs.get(step["name"])
            if there is None:
                self._create(board, main, step)
            if there is None or not holds(there, "Complete"):
                return
        main.setdefault("status", {})["conditions"] = [{"type": "Completed", "status": "True"}]
        board.touch(main)

    def _create(self, board: Board, main: Object, step: Step) -> None:
        (listed,) = [one for one in main["spec"]["replicatedJobs"] if one["name"] == step["name"]]
        labels = part(listed, "template", "metadata", "labels") | {
            "jobset.sigs.k8s.io/replicatedjob-name": step["name"],
            "jobset.sigs.k8s.io/restart-attempt": "0",
        }
        meta = {
            "name": f"{name_of(main)}-{step['name']}-0",
            "namespace": "team",
            "labels": labels,
            "annotations": {**part(listed, "template", "metadata", "annotations"), "step": json.dumps(dict(step))},
            "ownerReferences": [owner_reference(main)],
        }
        spec = listed["template"]["spec"]
        board.add("jobs", {"kind": "Job", "metadata": meta, "spec": spec, "status": {}})

    def _job(self, board: Board, job: Dict) -> None:
        if holds(job, "Complete") or is_deleted(job):
            return
        step, pods = json.loads(job["metadata"]["annotations"]["step"]), board.owned("pods", job)
        done = {int(labels_of(pod)["index"]) for pod in pods if _phase(pod) == "Succeeded"}
        going = [pod for pod in pods if is_active(pod)]
        wanted = min(int(job["spec"]["parallelism"]), step["pods"] - len(done))
        leaving = [pod for pod in going if is_deleted(pod)]
        staying = [pod for pod in going if not is_deleted(pod)]
        for pod in staying[wanted:]:
            board.end_pod(name_of(pod))  # what ends so counts as no failure
        taken = done | {int(labels_of(pod)["index"]) for pod in going}
        for index in [one for one in range(step["pods"]) if one not in taken][: max(0, wanted - len(staying))]:
            noted = {"batch.kubernetes.io/job-completion-index": str(index)}
            board.add("pods", pod_of(job, f"{name_of(job)}-{index}-{board.version}", step, index, annotations=noted))
        now = board.owned("pods", job)
        counts = {
            "active": sum(is_active(pod) and not is_deleted(pod) for pod in now),
            "ready": sum(_phase(pod) == "Running" for pod in now),
            "succeeded": len(done),
            "terminating": len(leaving),
        }
        status = job["status"]
        told = [{"type": "Complete", "status": "True"}] if len(done) == step["pods"] else []
        if status != counts | {"conditions": told}:
            job["status"] = counts | {"conditions": told}
            board.touch(job)


def machines() -> dict[str, Machine]:
    return {"toy": Toy(), "argo": Argo(), "tekton": Tekton(), "jobset": JobSets()}
