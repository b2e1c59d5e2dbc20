"""What a Map state asks for: its items, how many at once, how many may fail. Called by walker and inspect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.formats.asl.language import jsonata, payload
from penstock.formats.asl.language.failures import QUERY, RUNTIME, StateFailure
from penstock.formats.asl.walk.dataflow import Visit, as_number, effective, number
from penstock.formats.asl.walk.items import batches, pairs, read_items

INLINE_AT_ONCE: Final = 40
DISTRIBUTED_AT_ONCE: Final = 10_000
MOST_ITEMS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class MapPlan:
    """The numbers of one visit to a Map."""

    at_once: int
    tolerated: int | None
    """Failures that do not fail the Map; None: no limit by count."""
    percent: float | None

    def exceeded(self, failures: int, total: int) -> bool:
        if failures == 0:
            return False
        if self.tolerated is None and self.percent is None:
            return True
        by_count = self.tolerated is not None and failures > self.tolerated
        return by_count or (self.percent is not None and failures * 100 > self.percent * max(total, 1))


def beyond(found: MapPlan | None, distributed: bool, total: int) -> int:
    """How many of the items of a Map, or of branches, may fail."""
    if found is None or not distributed:
        return 0
    most = total if found.tolerated is None else min(found.tolerated, total)
    if found.percent is not None:
        most = min(most, int(found.percent * total // 100))
    elif found.tolerated is None:
        most = 0
    while most and found.exceeded(most, total):
        most -= 1
    return most


def processor(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The machine that handles one item."""
    found = state.get("ItemProcessor", state.get("Iterator"))
    return found if isinstance(found, Mapping) else {}


def is_distributed(state: Mapping[str, Any]) -> bool:
    config = processor(state).get("ProcessorConfig")
    return isinstance(config, Mapping) and config.get("Mode") == "DISTRIBUTED"


def plan(visit: Visit) -> MapPlan:
    """Raises StateFailure for a number that is none, or out of range."""
    data = effective(visit)
    most = DISTRIBUTED_AT_ONCE if is_distributed(visit.state) else INLINE_AT_ONCE
    at_once = number(visit, "MaxConcurrency", data)
    tolerated = number(visit, "ToleratedFailureCount", data)
    percent = number(visit, "ToleratedFailurePercentage", data, whole=False)
    for name, value in (("MaxConcurrency", at_once), ("ToleratedFailureCount", tolerated)):
        if value is not None and value < 0:
            raise StateFailure(RUNTIME, f"{name} cannot be negative.", name)
    if percent is not None and not 0 <= percent <= 100:
        raise StateFailure(
            RUNTIME, "ToleratedFailurePercentage must be between 0 and 100.", "ToleratedFailurePercentage"
        )
    if at_once is not None:
        visit.seen["maxConcurrency"] = at_once
    if tolerated is not None:
        visit.seen["toleratedFailureCount"] = tolerated
    if percent is not None:
        visit.seen["toleratedFailurePercentage"] = percent
    return MapPlan(int(at_once) if at_once else most, None if tolerated is None else int(tolerated), percent)


def reader_call(visit: Visit) -> tuple[str, Any] | None:
    """(resource, parameters) of the ItemReader, if there is one."""
    reader = visit.state.get("ItemReader")
    if not isinstance(reader, Mapping):
        return None
    if visit.is_jsonata:
        return str(reader["Resource"]), jsonata.fill(
            reader.get("Arguments", {}), visit.states(), visit.scope, "ItemReader/Arguments"
        )
    data = payload.picked(visit.state.get("InputPath", "$"), visit.raw, visit.scope)
    return str(reader["Resource"]), payload.fill(reader.get("Parameters", {}), data, visit.scope)


def items_of(visit: Visit, read: Any = None) -> list[Any]:
    """The items, before ItemSelector. `read`: what the ItemReader has read. Raises StateFailure."""
    reader = visit.state.get("ItemReader")
    if isinstance(reader, Mapping):
        config = reader.get("ReaderConfig") or {}
        found = read_items(config, read)
        most = _limit(visit, config, "MaxItems", "ItemReader/ReaderConfig/")
        return found[:most] if most else found
    if visit.is_jsonata:
        return _jsonata_items(visit)
    data = payload.picked(visit.state.get("InputPath", "$"), visit.raw, visit.scope)
    found = payload.picked(visit.state.get("ItemsPath", "$"), data, visit.scope)
    if isinstance(found, dict) and is_distributed(visit.state):
        found = pairs(found)
    if not isinstance(found, list):
        path = visit.state.get("ItemsPath", "$")
        raise StateFailure(RUNTIME, f'Reference path "{path}" must point to array.', "ItemsPath")
    visit.seen["afterItemsPath"] = found
    return found


def _jsonata_items(visit: Visit) -> list[Any]:
    template = visit.state.get("Items", "{% $states.input %}")
    if is_distributed(visit.state):
        found = jsonata.fill(template, visit.states(), visit.scope, "Items")
        if isinstance(found, dict):
            return pairs(found)
    found = jsonata.typed(template, "array", visit.states(), visit.scope, "Items")
    if not isinstance(found, list):
        raise StateFailure(QUERY, "Items is not an array", "Items")
    return found


def item_input(visit: Visit, index: int, item: Any) -> tuple[Any, Mapping[str, Any]]:
    """(input, context) of the machine that handles an item. Raises StateFailure."""
    held: dict[str, Any] = {"Index": index, "Value": item}
    if isinstance(item, dict) and set(item) == {"Key", "Value"} and is_distributed(visit.state):
        held = {"Index": index, "Key": item["Key"], "Value": item["Value"]}
    context = {**visit.scope.context, "Map": {"Item": held}}
    scope = replace(visit.scope, context=context)
    state = visit.state
    if visit.is_jsonata:
        if "ItemSelector" in state:
            item = jsonata.fill(state["ItemSelector"], visit.states(), scope, "ItemSelector")
        return item, context
    selector = state.get("ItemSelector", state.get("Parameters"))
    if selector is not None:
        data = payload.picked(state.get("InputPath", "$"), visit.raw, visit.scope)
        item = payload.fill(selector, data, scope)
    return item, context


def batched(visit: Visit, inputs: list[Any]) -> list[Any]:
    """The inputs, packed by the ItemBatcher if there is one. Raises StateFailure."""
    batcher = visit.state.get("ItemBatcher")
    if not isinstance(batcher, Mapping):
        return inputs
    more = batcher.get("BatchInput")
    if more is not None and visit.is_jsonata:
        more = jsonata.fill(more, visit.states(), visit.scope, "ItemBatcher/BatchInput")
    elif more is not None:
        data = payload.picked(visit.state.get("InputPath", "$"), visit.raw, visit.scope)
        more = payload.fill(more, data, visit.scope)
    count = _limit(visit, batcher, "MaxItemsPerBatch", "ItemBatcher/")
    size = _limit(visit, batcher, "MaxInputBytesPerBatch", "ItemBatcher/")
    return batches(inputs, count, size, more)


def _limit(visit: Visit, config: Mapping[str, Any], name: str, where: str) -> int | None:
    """A number of the reader or the batcher; None if there is none, or 0."""
    if f"{name}Path" in config and not visit.is_jsonata:
        data = payload.picked(visit.state.get("InputPath", "$"), visit.raw, visit.scope)
        found = payload.picked(config[f"{name}Path"], data, visit.scope)
        value = as_number(found, whole=True)
    elif name not in config:
        return None
    elif visit.is_jsonata:
        value = jsonata.typed(config[name], "integer", visit.states(), visit.scope, where + name)
    else:
        value = as_number(config[name], whole=True)
    if value is None:
        raise StateFailure(RUNTIME, f"The {name}Path field does not refer to a valid integer", name)
    if value < 0:
        raise StateFailure(RUNTIME, f"{name} cannot be negative.", name)
    return min(int(value), MOST_ITEMS) or None
