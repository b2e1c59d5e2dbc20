"""Stands in for kubectl, with a folder ($STAND_IN) for a cluster: objects/<kind>.<name>.json, each with an answer for every look.

progress.json   {"<kind>.<name>": [status, status, …]}: what each `get` finds next; the last one stays. null: it is gone
fault           what is said instead of an answer, once for each line of it
pods            {"<selector>": [pod, …]}: what `get pods` answers. logs: {"<pod>": text}
localqueues     names, one on each line, of Kueue's LocalQueues; without the file the cluster has no Kueue
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
    text = sys.stdin.read()
    given = json.loads(text) if text else None
    with open(HERE / "calls", "a") as file:
        print(json.dumps([verb, *words, given]), file=file)
    fault = HERE / "fault"
    if fault.exists() and (lines := fault.read_text().splitlines()):
        fault.write_text("\n".join(lines[1:]))
        sys.exit(lines[0])
    if "--filename" not in words or words[0] == "--raw":
        asked(verb, words, given)
        return
    key = f"{given['kind']}.{given['metadata']['name']}"
    if given["kind"] in unknown_kinds():
        sys.exit(
            f'error: resource mapping not found for name: "{given["metadata"]["name"]}" namespace: "" from "STDIN": no matches for kind'
            f' "{given["kind"]}" in version "{given["apiVersion"]}"\nensure CRDs are installed first'
        )
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
    print(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [new]} if verb == "get" else new)
    )  # as kubectl 1.36 does


def unknown_kinds() -> list[str]:
    file = HERE / "unknown"
    return file.read_text().split() if file.exists() else []


def asked(verb: str, words: tuple[str, ...], given: Any) -> None:
    """What is not about one manifest: raw paths, pods, logs, queues."""
    if verb == "get" and words[0] == "--raw":
        kinds = {file.name.split(".")[0] for file in HERE.glob("*.*.json")}
        print(json.dumps({"resources": [{"name": f"{kind.lower()}s", "kind": kind} for kind in sorted(kinds)]}))
    elif verb == "delete":
        *_, plural, name = words[1].split("/")
        file = next(
            (one for one in HERE.glob(f"*.{name}.json") if f"{one.name.split('.')[0].lower()}s" == plural), None
        )
        if file is None:
            fail("NotFound", f'{plural} "{name}" not found')
        elif given["preconditions"]["uid"] != json.loads(file.read_text())["metadata"]["uid"]:
            fail("Conflict", "the UID in the precondition does not match")
        else:
            file.unlink()
            print(json.dumps({"kind": "Status", "status": "Success"}))
    elif verb == "logs":
        logs = json.loads((HERE / "logs").read_text())
        if words[0] not in logs:
            fail("BadRequest", f'container "main" in pod "{words[0]}" is waiting to start')
        print(logs[words[0]])
    elif words[0] == "pods":
        file = HERE / "pods"
        found = json.loads(file.read_text()) if file.exists() else {}
        print(json.dumps({"items": found.get(words[words.index("--selector") + 1], [])}))
    else:
        file = HERE / "localqueues"
        if not file.exists():
            sys.exit('error: the server doesn\'t have a resource type "localqueues"')
        if words[1] not in file.read_text().split():
            fail("NotFound", f'localqueues.kueue.x-k8s.io "{words[1]}" not found')
        print(f"localqueue.kueue.x-k8s.io/{words[1]}")


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
