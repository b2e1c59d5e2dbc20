"""Texts of an Argo gate: the shape and size of the stage, its condition, and patches of pods. Called by gate.inject.

Argo replaces tags in text before it parses the text. So these texts contain only intended tags, none whose variable is unknown at its place,
and none that could be replaced too early.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from penstock.formats.argo.known import split_tags
from penstock.formats.argo.pods import loops, patch_of, size_of, whole
from penstock.formats.argo.stages import LeafCall, StaticStage, mentions_item
from penstock.formats.documents import items, part
from penstock.graph import quantity

_SIMPLE = re.compile(r"\{\{\s*([A-Za-z][\w.-]*)\s*\}\}\Z")
_EXPRESSION = re.compile(r"\{\{=((?:(?!\}\}).)*)\}\}\Z", re.S)
_TO_JSON = re.compile(r"\s*to(?:Json|JSON)\(.*\)\s*\Z", re.S)
_LATER_ROOTS = ("steps", "tasks")
_KNOWN_TAG = re.compile(r"\{\{\s*(?:workflow|inputs)\.[\w.-]+\s*\}\}")
_INPUT = re.compile(r"\{\{\s*inputs\.parameters\.([\w-]+)\s*\}\}")
_OF_ITEM = re.compile(r"\bitem\b")
_MARKERS = re.compile(r"^(?:---|\.\.\.|%)", re.M)


def condition(stage: StaticStage) -> str:
    """The `when` of the gate: if every member has a condition that does not read its items, the gate is skipped with all of them."""
    texts = [call.when for call in stage.calls]
    if not all(texts) or any(map(mentions_item, texts)):
        return ""
    return texts[0] if len(texts) == 1 else " || ".join(f"({text})" for text in dict.fromkeys(texts))


def shape(stage: StaticStage) -> str:
    """JSON, with sizes that Argo fills in: [{"n": 3, "step": "train", "template": "trainer", "resources": {"cpu": "2"}}, …].
    `n` is null if it is unknown; `conditional` means that it is an upper bound."""
    return f"[{','.join(_member(stage, call) for call in stage.calls)}]"


def _member(stage: StaticStage, call: LeafCall) -> str:
    here = call.shape
    said: dict[str, Any] = {"step": call.name, "template": call.template}
    said["resources"] = {name: quantity.show(amount, name) for name, amount in sorted(here.resources.items())}
    if here.pods != 1:
        said["pods"] = here.pods
    if here.node_selector:
        said["nodeSelector"] = dict(here.node_selector)
    if here.tolerations:
        said["tolerations"] = [dict(one) for one in here.tolerations]
    if here.open:
        said["open"] = list(here.open)
    if here.daemon:
        said["daemon"] = True
    if call.when and (call.by_item or len(stage.calls) > 1):
        said["conditional"] = True
    text = json.dumps(said, separators=(",", ":"), default=str)
    return f'{{"n":{count(stage, call)},{text[1:].replace("{{", "{ {")}'


def count(stage: StaticStage, call: LeafCall) -> str:
    """A number, a tag that becomes one, or null."""
    size = size_of(call.call)
    if size is not None:
        return str(size)
    found = _list_length(call.call.get("withParam")) or _sequence_length(part(call.call, "withSequence"))
    if found is None or _OF_ITEM.search(found):
        return "null"
    later = any(root in found for root in _LATER_ROOTS)
    if later and call.when and not call.by_item and len(stage.calls) > 1:
        # The gate may run although this member is skipped; then the value with its size may not exist.
        return "null"
    return f"{{{{={found}}}}}"


def _list_length(text: Any) -> str | None:
    if not isinstance(text, str):
        return None
    value = text.strip()
    simple = _SIMPLE.match(value)
    if simple:
        path = _path(simple[1])
        # An empty text is no loop for Argo: the step is run once.
        return path and f"{path} == '' ? 1 : len(fromJSON({path}))"
    expression = _EXPRESSION.match(value)
    return f"len(fromJSON({expression[1]}))" if expression and _TO_JSON.match(expression[1]) else None


def _sequence_length(sequence: Mapping[str, Any]) -> str | None:
    if not sequence:
        return None
    if sequence.get("count") is not None:
        return _number(sequence["count"])
    start, end = _number(sequence.get("start") or 0), _number(sequence.get("end") or 0)
    if start is None or end is None:
        return None
    return f"{end} >= {start} ? {end} - {start} + 1 : {start} - {end} + 1"


def _number(value: Any) -> str | None:
    number = whole(value)
    if number is not None:
        return str(number) if number >= 0 else f"({number})"
    if not isinstance(value, str):
        return None
    simple, expression = _SIMPLE.match(value.strip()), _EXPRESSION.match(value.strip())
    inner = _path(simple[1]) if simple else expression[1] if expression else None
    return f"asInt({inner})" if inner else None


def _path(tag: str) -> str | None:
    """`steps.a.outputs.parameters.my-list` as an expression reads it."""
    parts = tag.split(".")
    if parts[0] not in ("steps", "tasks", "inputs", "workflow") or not all(parts):
        return None
    return parts[0] + "".join(f".{one}" if one.isidentifier() else f"['{one}']" for one in parts[1:])


def cache_key(stage: StaticStage) -> str:
    """`config-map/key` of a stage whose only call is memoized: a cached result needs no quota. Empty if the key depends on more than
    the inputs of the template around it."""
    if len(stage.calls) != 1 or loops(stage.calls[0].call):
        return ""
    (call,) = stage.calls
    memoize = part(call.resolved.scope.effective(call.resolved.template), "memoize")
    store, key = part(memoize, "cache", "configMap").get("name"), memoize.get("key")
    if not isinstance(key, str) or not isinstance(store, str):
        return ""
    given = {str(one.get("name")): one.get("value") for _, one in items(part(call.call, "arguments"), "parameters")}
    defaults = {
        str(one.get("name")): one.get("value", one.get("default"))
        for _, one in items(part(call.resolved.template, "inputs"), "parameters")
    }
    text = _INPUT.sub(lambda tag: str(given.get(tag[1], defaults.get(tag[1], tag[0]))), f"{store}/{key}")
    known = all(_KNOWN_TAG.fullmatch(piece) if tag else "{{" not in piece for piece, tag in split_tags(text))
    # A tag of an input that is not given belongs to the leaf and has another meaning here.
    return text if known and all(name in given | defaults for name in _INPUT.findall(key)) else ""


def patched(text: Any, name: str, value: str) -> str | None:
    """A podSpecPatch with one more top-level field; None if it has the field already, or cannot be parsed. `value` is JSON, or a tag
    that becomes JSON."""
    if text is None or (isinstance(text, str) and not text.strip()):
        return f'{{"{name}":{value}}}'
    if not isinstance(text, str) or _MARKERS.search(text):
        return None
    data = patch_of(text)
    if data is None or name in data or text.lstrip().startswith("{{"):
        return None
    if text.lstrip().startswith("{"):
        head, _, rest = text.partition("{")
        found = f'{head}{{"{name}":{value}{"," if data else ""}{rest}'
    else:
        first = next(line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#"))
        indent = first[: len(first) - len(first.lstrip())]
        found = f"{indent}{name}: {value}\n{text}"
    wanted = patch_of(f'{{"{name}":{value}}}')
    return found if wanted is not None and patch_of(found) == data | wanted else None
