"""Stands in for kubectl, with a folder ($STAND_IN) for a cluster: objects/<kind>.<name>.json, each with an answer for every look.

progress.json   {"<kind>.<name>": [status, status, …]}: what each `get` finds next; the last one stays. null: it is gone
fault           what is said instead of an answer, once for each line of it
calls           every call, one line each: the words and what was given
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(os.environ["STAND_IN"])


def fail(reason: str, text: str) -> None:
    sys.exit(f"Error from server ({reason}): {text}")


def merge(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: merge(old.get(key), value) for key, value in new.items()}}


def main(verb: str, *words: str) -> None:
    given = json.loads(sys.stdin.read())
    with open(HERE / "calls", "a") as file:
        print(json.dumps([verb, *words, given]), file=file)
    fault = HERE / "fault"
    if fault.exists() and (lines := fault.read_text().splitlines()):
        fault.write_text("\n".join(lines[1:]))
        sys.exit(lines[0])
    key = f"{given['kind']}.{given['metadata']['name']}"
    what = f'{given["kind"].lower()}s "{given["metadata"]["name"]}"'
    file = HERE / f"{key}.json"
    old = json.loads(file.read_text()) if file.exists() else None
    if verb == "create" and old is not None:
        fail("AlreadyExists", f'error when creating "STDIN": {what} already exists')
    if verb in ("get", "patch", "replace") and old is None:
        fail("NotFound", f"{what} not found")
    if verb in ("create", "apply", "replace"):
        new = {**given, "metadata": {"namespace": "default", "uid": os.urandom(4).hex(), **given["metadata"]}}
    elif verb == "patch":
        if "--type=strategic" in words and "." in given["apiVersion"]:
            fail("UnsupportedMediaType", "the body of the request was in an unknown format")
        new = merge(old, json.loads(words[words.index("--patch") + 1]))
    elif verb == "delete":
        new = {**(old or {}), "metadata": {**given["metadata"], **(old or {})["metadata"], "deletionTimestamp": "now"}}
    else:
        new = looked_at(key, old)
    if new is None:
        file.unlink()
        fail("NotFound", f"{what} not found")
    put(file, json.dumps(new))
    print(json.dumps(new))


def put(file: Path, text: str) -> None:
    """At once: the test may be reading."""
    scratch = file.with_suffix(f".{os.getpid()}")
    scratch.write_text(text)
    scratch.replace(file)


def looked_at(key: str, old: Any) -> Any:
    place = HERE / "progress.json"
    progress = json.loads(place.read_text()) if place.exists() else {}
    coming = progress.get(key, [])
    if not coming:
        return old
    if len(coming) > 1:
        progress[key] = coming[1:]
        put(place, json.dumps(progress))
    return None if coming[0] is None else {**old, "status": coming[0]}


main(*sys.argv[1:])
