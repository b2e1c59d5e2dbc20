"""What is sent to a server: a workflow with its code, and the files among values. Called by `penstock run --server`, `resume --server` and `Client`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.artifacts.blobs import digest_of
from penstock.author.pack import pack
from penstock.errors import PlanError, Problem
from penstock.graph import codec
from penstock.graph.model import Workflow
from penstock.plan.make import uninterrupted
from penstock.service import input_files, parameters
from penstock.service.connection import ServerConnection, digest_of_file
from penstock.service.intake_terms import BLOB
from penstock.service.payloads.identity import identity_of


def submit(
    server: ServerConnection, workflow: Workflow, params: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Sends code and files that the server does not have, then the workflow. Raises UserError."""
    made: dict[str, Any] = server.post(
        "runs", _body(server, workflow, params, options), {"Idempotency-Key": os.urandom(16).hex()}
    )
    return made


def submit_payload(
    server: ServerConnection,
    workflow: Workflow,
    payload: Any,
    params: Mapping[str, Any],
    options: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> dict[str, Any]:
    """The same for a payload. `asked`: replace, version, label. Raises UserError."""
    name = identity_of(workflow).param
    values = parameters.from_python(workflow, {name: payload})
    body = _body(server, workflow, params, options) | {"payload": values[name]}
    made: dict[str, Any] = server.post("payloads", body | {key: one for key, one in asked.items() if one})
    return made


def _body(
    server: ServerConnection, workflow: Workflow, params: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    packed = pack(workflow)
    bundle = "" if packed is None else digest_of(packed[0])
    if packed is not None and server.missing([bundle]):
        server.put_blob(bundle, packed[0])
    values = placed(server, workflow, parameters.from_python(workflow, params))
    with uninterrupted():
        document = codec.to_json(workflow)
    return {
        "document": document,
        "params": values,
        "options": {name: value for name, value in options.items() if value},
        "bundle": bundle,
    }


def placed(server: ServerConnection, workflow: Workflow, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of its parameters with blobs in place of files, which are sent if the server does not have them. Raises UserError."""
    found = dict(values)
    files: dict[str, Path] = {}
    for param in workflow.params:
        if param.name in found:
            found[param.name] = input_files.replaced(
                param.type,
                found[param.name],
                lambda path, name=param.name: _sent(path, name, files),  # type: ignore[misc]
            )
    for digest in server.missing([*files]):
        with open(files[digest], "rb") as file:
            server.put_blob(digest, file)
    return found


def _sent(path: Path, name: str, files: dict[str, Path]) -> Any:
    if path.is_dir():
        fix = "send an archive of it, as a file, and unpack it in a task"
        raise PlanError(Problem("P935", f"the parameter {name!r} is a folder", fix, where=f"params.{name}"))
    digest = digest_of_file(path)
    files[digest] = path
    return {BLOB: digest, "name": path.name}
