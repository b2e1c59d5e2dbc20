"""What users write of a scheduler onto the object itself, where no pod gets it: read into the Binding, so that it is written where it counts. Called by apply.

As Flyte's RFC 5575 has it, with its mistakes: a style in lower case, which YuniKorn takes for Soft; a user that is no JSON, whom it takes for nobody; Kueue's total of a pod group as
a label, which nothing reads. What the command says wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.formats.documents import part
from penstock.formats.report import Report
from penstock.scheduling import fields, keys
from penstock.scheduling.model import Binding, JobObject, Path

LABELS: Final[Path] = ("metadata", "labels")
NOTES: Final[Path] = ("metadata", "annotations")
_NUMBER: Final = re.compile(r"[0-9]{1,9}\Z", re.A)
_USER: Final = re.compile(r"(?:([^.\s]+)\.)?(\S.*)\Z", re.S)
_TRUTH: Final = {"true": True, "false": False}
CARRIED: Final = (keys.PARAMETERS, keys.USER_INFO, keys.ALLOW_PREEMPTION)


def carried(job: JobObject, binding: Binding, report: Report) -> Binding:
    """The binding with what the object's own annotations say and the command does not. Corrections are `changed`, what cannot be read is `lost`."""
    notes = part(job.document.metadata, "annotations")
    for key, read in ((keys.PARAMETERS, _parameters), (keys.USER_INFO, _user), (keys.ALLOW_PREEMPTION, _preemption)):
        text = notes.get(key)
        if isinstance(text, str) and text:
            place = f"metadata.annotations.{key}"
            source = job.document.source(place)
            found, said, lost = read(text)
            for line in said:
                report.changed(place, f"{job.title}: {line}", "", source)
            for line in lost:
                report.lost(place, f"{job.title}: {line}", _FIX[key], source)
            binding = _filled(binding, found)
    return binding


_FIX: Final = {
    keys.PARAMETERS: f"write {keys.TIMEOUT}=60 {keys.STYLE}=Hard, with one space between",
    keys.USER_INFO: '{"user": "sue", "groups": []}',
    keys.ALLOW_PREEMPTION: "write 'true' or 'false'",
}
Read = tuple[dict[str, Any], list[str], list[str]]
"""Fields of the Binding; what was corrected; what cannot be read."""


def _filled(binding: Binding, found: Mapping[str, Any]) -> Binding:
    """Only what is not set: the user and its groups belong together."""
    if binding.user:
        found = {name: value for name, value in found.items() if name not in ("user", "groups")}
    unset = {name: value for name, value in found.items() if getattr(binding, name) in ("", None, ())}
    return replace(binding, **unset)


def _parameters(text: str) -> Read:
    found: dict[str, Any] = {}
    said, lost = [], []
    for piece in text.split():
        name, _, value = piece.partition("=")
        if name.lower() == keys.STYLE.lower() and value.capitalize() in ("Soft", "Hard"):
            found["style"] = value.capitalize()
            meant = f"{keys.STYLE}={found['style']}"
        elif name.lower() == keys.TIMEOUT.lower() and _NUMBER.match(value):
            found["timeout"] = int(value)
            meant = f"{keys.TIMEOUT}={int(value)}"
        else:
            lost.append(f"{piece[:60]!r} is nothing that YuniKorn reads")
            continue
        if piece != meant:
            said.append(f"{piece} is written as {meant}: YuniKorn would take it for the default without a word")
    return found, said, lost


def _user(text: str) -> Read:
    """JSON, or `organisation.Name` as in the RFC: the organisation is the user's group."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and isinstance(data.get("user"), str) and data["user"]:
        groups = data.get("groups")
        return {"user": data["user"], "groups": tuple(map(str, groups if isinstance(groups, list) else ()))}, [], []
    match = _USER.match(text.strip()) if data is None and text.strip()[:1] not in ("{", "[") else None
    if match is None:
        return {}, [], [f"{text[:60]!r} names no user"]
    group, user = match.groups()
    groups = (group,) if group else ()
    meant = json.dumps({"user": user, "groups": list(groups)}, separators=(",", ":"), ensure_ascii=False)
    said = f"the user {text[:60]!r} is written as {meant}: YuniKorn reads JSON, and would take anything else for nobody"
    return {"user": user, "groups": groups}, [said], []


def _preemption(text: str) -> Read:
    truth = _TRUTH.get(text.lower())
    return (
        ({}, [], [f"{text[:60]!r} is neither true nor false"])
        if truth is None
        else ({"allow_preemption": truth}, [], [])
    )


# -- what is taken out ------------------------------------------------------------------------------------------------


def misplaced(job: JobObject, data: Mapping[str, Any], yunikorn: bool) -> Iterator[tuple[Path, str, str]]:
    """(place, key, why it goes) of marks in the written document that nothing reads where they are."""
    for place in dict.fromkeys((LABELS, *(role.slot.labels for role in job.roles if role.slot.labels))):
        found = fields.at(data, place)
        if isinstance(found, Mapping) and keys.POD_GROUP_TOTAL in found:
            yield (
                place,
                keys.POD_GROUP_TOTAL,
                f"Kueue reads {keys.POD_GROUP_TOTAL} as an annotation, never as a label, so the label is taken out",
            )
    notes = fields.at(data, NOTES)
    if not yunikorn or not isinstance(notes, Mapping) or any(role.slot.annotations == NOTES for role in job.roles):
        return
    for key in CARRIED:
        if key in notes and not (key == keys.PARAMETERS and job.kind.api_group == "ray.io"):
            yield (
                NOTES,
                key,
                f"YuniKorn reads {key} of pods only, so it is taken out here and written into their templates",
            )
