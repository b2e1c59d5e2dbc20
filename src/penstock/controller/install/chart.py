"""The manifests as a Helm chart. Called by scripts/docs, which writes it to deploy/chart and fails in `make check` if it is out of date.

The chart is made of the manifests: values stand where the options differ, and what belongs to one engine is between `if` and `end`. What belongs to an
engine is found by comparing, so nothing has to be said twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from penstock.controller.install.manifests import IMAGE, Install, manifests
from penstock.controller.install.policies import ENGINES, Manifest
from penstock.formats.yaml_writer import dump

_MARKED = "penstock-chart-namespace"
_IMAGE = "penstock-chart-image"
_REPLICAS = 98765
_NOTE = "# Made by `make docs` from the manifests of `penstock controller manifests`; do not edit.\n"


def files(version: str) -> dict[str, str]:
    """Path below the chart -> text. `version`: of Penstock."""
    return {
        "Chart.yaml": _NOTE + _chart(version),
        "values.yaml": _values(version),
        "templates/controller.yaml": _NOTE + _templates(),
    }


def _chart(version: str) -> str:
    return dump(
        {
            "apiVersion": "v2",
            "name": "penstock",
            "description": "Workflows of Argo, Tekton and JobSet wait in the queues of Kueue, stage by stage.",
            "type": "application",
            "version": version,
            "appVersion": version,
            "kubeVersion": ">= 1.36.0-0",
        }
    )


def _values(version: str) -> str:
    engines = "".join(f"  - {one}\n" for one in ENGINES)
    return (
        f"{_NOTE}# The image that deploy/Containerfile makes, where your cluster finds it.\nimage: {IMAGE}:{version}\n"
        f"# One acts, the others wait to take over; all answer the API server.\nreplicas: 2\n"
        f"# Those whose types the cluster has.\nengines:\n{engines}"
    )


def _templates() -> str:
    def made(*engines: str) -> list[Manifest]:
        found = manifests(Install(_MARKED, _IMAGE, _REPLICAS, engines))
        # Helm makes the namespace (--create-namespace).
        return [one for one in found if one["kind"] != "Namespace"]

    variants = {engine: made(engine) for engine in ENGINES}
    parts = _marked(made(*ENGINES), variants, made())
    text = ""
    for part in parts:
        text += part + "\n" if isinstance(part, str) else "---\n" + dump(part)
    assert "{{" not in text, "Helm would read it"
    return _filled(text)


def _filled(text: str) -> str:
    text = re.sub(r"^ *(?:- )?['\"]?@(if|end)(?: ([a-z ]+))?@['\"]?$", _block, text, flags=re.M)
    text = text.replace(f"--engines={','.join(ENGINES)}", '--engines={{ join "," .Values.engines }}')
    text = text.replace(f"image: {_IMAGE}", "image: {{ .Values.image | quote }}")
    text = text.replace(f"replicas: {_REPLICAS}", "replicas: {{ .Values.replicas }}")
    return text.replace(_MARKED, "{{ .Release.Namespace }}")


def _block(found: re.Match[str]) -> str:
    if found[1] == "end":
        return "{{- end }}"
    names = [f'(has "{name}" .Values.engines)' for name in found[2].split()]
    return f"{{{{- if or {' '.join(names)} }}}}" if len(names) > 1 else f"{{{{- if {names[0].strip('()')} }}}}"


def _marked(whole: Any, variants: Mapping[str, Any], none: Any) -> Any:
    """`whole` with marks around entries of lists that only some engines have. `variants`: with one engine alone; `none`: without any."""
    if isinstance(whole, dict):
        return {
            key: _marked(
                value,
                {name: one[key] for name, one in variants.items() if isinstance(one, dict) and key in one},
                none.get(key) if isinstance(none, dict) else None,
            )
            for key, value in whole.items()
        }
    if not isinstance(whole, list) or not all(isinstance(one, dict) for one in whole):
        return whole
    made: list[Any] = []
    entries = {name: {_identity(one): one for one in found} for name, found in variants.items()}
    always = {_identity(one): one for one in none or ()}
    for one in whole:
        key = _identity(one)
        having = {name: found[key] for name, found in entries.items() if key in found}
        inner = _marked(one, having, always.get(key))
        # Without anything to compare with, this stands between marks already.
        if key in always or (none is None and having.keys() == variants.keys()):
            made.append(inner)
        else:
            made += [f"@if {' '.join(having)}@", inner, "@end@"]
    return made


def _identity(entry: Mapping[str, Any]) -> str:
    meta = entry.get("metadata")
    if isinstance(meta, Mapping):
        return f"{entry.get('kind')} {meta.get('name')}"
    return str(entry["name"]) if "name" in entry else json.dumps(entry, sort_keys=True)
