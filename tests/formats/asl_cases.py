"""The recorded cases of Amazon States Language, and how they are replayed. Called by test_asl_cases.

They are not in the repository: PENSTOCK_ASL_CASES names their folder (default ../shared/corpus/asl beside the project)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.formats.asl.language.failures import StateFailure
from penstock.formats.asl.language.scope import SeededChance
from penstock.formats.asl.read.outline import outline, places
from penstock.formats.asl.walk import maps, rounds
from penstock.formats.asl.walk.dry import DryDriver, DryRun, GivenAnswer
from penstock.formats.asl.walk.effects import CallTask, Entered, EvaluationFailed, Left, MachineEnded, ReadItems
from penstock.formats.asl.walk.inspect import Request, inspect
from penstock.formats.asl.walk.walker import MachineRun, Walker

FOLDER = Path(os.environ.get("PENSTOCK_ASL_CASES") or Path(__file__).parents[2].parent / "shared" / "corpus" / "asl")
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
"""The day that the recordings were moved to."""
HOLES = re.compile(r"(date|timestamp|RandomNumberGenerated|[a-z]+-(date|time|arn)|\w+EventDetails\.\w+)\Z")


def cases(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, case) of a part. Skips the test where the cases are not."""
    folder = FOLDER / kind
    if not folder.is_dir():
        pytest.skip(f"no cases of Amazon States Language at {FOLDER}/{kind}: set PENSTOCK_ASL_CASES")
    return [
        (path.relative_to(folder).as_posix(), json.loads(path.read_text())) for path in sorted(folder.rglob("*.json"))
    ]


def execution(name: str = "machine") -> MachineRun:
    arn = "arn:aws:states:us-east-1:111111111111"
    return MachineRun(
        f"{arn}:execution:{name}:run",
        "run",
        "2026-11-16T12:00:00.000Z",
        f"{arn}:stateMachine:{name}",
        name,
        "snf_role_arn",
    )


class Recorded:
    """The answers of a recording."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.unused = list(case.get("tasks", ()))
        self.files = case.get("files", {})

    def call(self, call: CallTask) -> GivenAnswer:
        task = next((one for one in self.unused if fits(one["parameters"], call.parameters)), None)
        task = task or next(iter(self.unused), None)
        if task is None:
            return GivenAnswer(failure=StateFailure("Test.NoAnswer", f"nothing was recorded for {call}"))
        self.unused.remove(task)
        result = task.get("result")
        if result is None or result.get("timed_out"):
            return GivenAnswer(never=True)
        if "output" in result:
            return GivenAnswer(result["output"])
        cause = result["cause"]
        return GivenAnswer(
            failure=StateFailure(result["error"], cause if isinstance(cause, str | None) else json.dumps(cause))
        )

    def read(self, reading: ReadItems) -> GivenAnswer:
        found = self.files.get(reading.parameters.get("Key"))
        return (
            GivenAnswer(found)
            if found is not None
            else GivenAnswer(failure=StateFailure("States.ItemReaderFailed", "no file"))
        )


def replay(case: dict[str, Any]) -> DryRun:
    walker = Walker(case["definition"], execution(), SeededChance(case["id"]))
    return DryDriver(walker, Recorded(case), NOW).go(case["input"])


def plain(value: Any) -> Any:
    """Every text that holds a JSON object becomes the object, as in the recordings."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str) and value.startswith("{"):
        try:
            return plain(json.loads(value))
        except ValueError:
            return value
    return value


def fits(wanted: Any, found: Any) -> bool:
    """Equal, where a hole of the recording fits any text or number."""
    return _fits(plain(wanted), plain(found))


def _fits(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(_fits(one, found[key]) for key, one in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_fits, wanted, found))
    if isinstance(wanted, str):
        if HOLES.match(wanted) or re.search(r"<[^<>]+>", wanted):
            return True
        return wanted == found
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    return bool(wanted == found)


def trace_of(run: DryRun) -> Iterator[dict[str, Any]]:
    for one in run.trace:
        match one:
            case Entered(state, given):
                yield {"enter": state, "input": given}
            case Left(state, output, assigned):
                yield {"exit": state, "output": output, **({"assigned": dict(assigned)} if assigned else {})}
            case EvaluationFailed(state, error, where):
                yield {"evaluation_failed": {"state": state, "error": error, "location": where}}


def same_end(case: dict[str, Any], ended: MachineEnded | None) -> bool:
    expect = case["expect"]
    if ended is None or ended.status != expect["status"]:
        return False
    if ended.status == "SUCCEEDED":
        return fits(expect["output"], ended.output)
    return ended.error == expect.get("error")


def same_trace(case: dict[str, Any], run: DryRun) -> bool:
    wanted = [dict(one) for one in case["trace"]]
    for one in wanted:
        if "evaluation_failed" in one:
            one["evaluation_failed"] = {
                key: one["evaluation_failed"].get(key) for key in ("state", "error", "location")
            }
    found = list(trace_of(run))
    if len(wanted) != len(found):
        return False
    if not case.get("trace_unordered"):
        return all(map(fits, wanted, found))
    for one in wanted:
        met = next((at for at, other in enumerate(found) if fits(one, other)), None)
        if met is None:
            return False
        found.pop(met)
    return True


def inspected(case: dict[str, Any]) -> dict[str, Any]:
    """The answer to a case of `state/`, in the form of the recording."""
    asked, expect = case["request"], case["expect"]
    mock = asked.get("mock", {})
    error = mock.get("errorOutput")
    if "result" in mock:
        result = json.loads(mock["result"])
    else:  # a real function was called; what it gave is only in the answer
        result = expect.get("inspectionData", {}).get("result", expect.get("output"))
    settings = asked.get("stateConfiguration", {})
    found = inspect(
        Request(
            definition=case["definition"],
            state=asked.get("stateName"),
            input=asked["input"],
            result=result,
            failure=StateFailure(error["error"], error["cause"]) if error else None,
            context=asked.get("context"),
            variables=asked.get("variables", {}),
            retries=settings.get("retrierRetryCount", 0),
            items=settings.get("mapItemReaderData"),
        )
    )
    answer: dict[str, Any] = {"status": found.status}
    if found.status in ("SUCCEEDED", "CAUGHT_ERROR"):
        answer["output"] = found.output
    if found.failure is not None:
        answer |= {"error": found.failure.error, "cause": found.failure.cause}
    if found.next is not None:
        answer["nextState"] = found.next
    if asked.get("inspectionLevel") != "INFO":
        answer["inspectionData"] = found.seen
    return answer


def replay_in_rounds(case: dict[str, Any]) -> MachineEnded:
    """A case without tasks as the engine has it: one level and one round at a time, kept as JSON between them."""
    run, now = execution(), NOW

    def level(definition: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
        nonlocal now
        answer: dict[str, Any] = {}
        while True:
            kept = json.loads(json.dumps(rounds.turn(outline(definition, places(definition)), kept, answer, now)))
            if kept["end"] is not None:
                return kept["end"]
            if kept["wait"]:
                now, answer = max(now, datetime.fromisoformat(kept["wait"])), {}
            elif kept["read"] is not None:
                answer = {"answer": case["files"][kept["read"]["parameters"]["Key"]]}
            else:
                state = definition["States"][kept["at"]]
                inner = state.get("Branches") or [maps.processor(state)] * len(kept["items"])
                answer = {"answer": [level(one, walk) for one, walk in zip(inner, kept["items"], strict=True)]}

    return MachineEnded(
        **level(
            case["definition"],
            rounds.first(outline(case["definition"], places(case["definition"])), case["input"], run),
        )
    )
