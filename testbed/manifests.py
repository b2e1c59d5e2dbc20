"""The objects that the projects ship (types, roles, webhook configurations), read from the folders of their Go modules. Called by the components.

None of it is committed here: what is installed is what the pinned version ships, less what only makes sense inside a cluster.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from testbed import binaries
from testbed.errors import TestbedError

Object = dict[str, Any]
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Controllers run outside, so there is nothing to deploy and no service would lead anywhere.
DEPLOYED = ("Deployment", "Service", "Secret", "ConfigMap", "HorizontalPodAutoscaler", "PodDisruptionBudget")


def files(*paths: Path) -> list[Object]:
    """All objects of YAML files, and of the YAML files in folders."""
    return _kept(f"files {' '.join(map(str, paths))}", lambda: _read(*paths))


def kustomize(folder: Path) -> list[Object]:
    """The objects of a kustomization, rendered by the built kubectl."""
    return _kept(f"kustomize {folder}", lambda: _rendered(folder))


def wheel(file: Path, folder: str) -> list[Object]:
    """The objects in the YAML files of a folder of a Python wheel."""
    return _kept(f"wheel {file} {folder}", lambda: _unpacked(file, folder))


def _unpacked(file: Path, folder: str) -> list[Object]:
    with zipfile.ZipFile(file) as opened:
        names = sorted(name for name in opened.namelist() if name.startswith(folder) and name.endswith(".yaml"))
        return [thing for name in names for thing in yaml.load_all(opened.read(name), _Loader) if thing]


def _read(*paths: Path) -> list[Object]:
    found: list[Object] = []
    for path in paths:
        for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
            with file.open() as text:
                found += [thing for thing in yaml.load_all(text, _Loader) if thing and "kind" in thing]
    return found


def _rendered(folder: Path) -> list[Object]:
    done = subprocess.run([str(binaries.path("kubectl")), "kustomize", str(folder)], capture_output=True, text=True)
    if done.returncode:
        raise TestbedError(f"rendering {folder} failed; kubectl said:\n{done.stderr.strip()[-800:]}")
    return [thing for thing in yaml.load_all(done.stdout, _Loader) if thing]


def _kept(what: str, make: Callable[[], list[Object]]) -> list[Object]:
    """What was read once is kept as JSON beside the programs: megabytes of YAML take seconds to read, and a pinned folder never changes."""
    key = hashlib.sha256(what.encode()).hexdigest()[:16]
    kept = binaries.path("kubectl").parent / f"manifests-{key}.json"
    if not kept.exists():
        objects = [_undescribed(thing) if thing["kind"] == "CustomResourceDefinition" else thing for thing in make()]
        half = kept.with_name(f".{kept.name}.{os.getpid()}")
        half.write_text(json.dumps(objects, default=str))
        half.replace(kept)
    found: list[Object] = json.loads(kept.read_text())
    return found


def _undescribed(data: Any) -> Any:
    """Without the descriptions, which check nothing: they are most of a schema, and the API server takes a second longer with them."""
    if isinstance(data, list):
        return [_undescribed(one) for one in data]
    if isinstance(data, dict):
        # A property may be named description; that one is not a text.
        texts = [key for key, value in data.items() if key == "description" and isinstance(value, str)]
        return {key: _undescribed(value) for key, value in data.items() if key not in texts}
    return data


def without(objects: Iterable[Object], kinds: Iterable[str] = DEPLOYED) -> list[Object]:
    left_out = set(kinds)
    return [thing for thing in objects if thing["kind"] not in left_out]


def in_namespace(objects: Iterable[Object], namespace: str) -> Iterator[Object]:
    """With a namespace where it is left open: of what is in one, and of the accounts that a binding names."""
    for thing in objects:
        meta = (
            thing["metadata"] if thing["kind"].startswith("Cluster") else {**thing["metadata"], "namespace": namespace}
        )
        subjects = [{**one, "namespace": namespace} for one in thing.get("subjects") or ()]
        yield {**thing, "metadata": meta, **({"subjects": subjects} if subjects else {})}


def webhooks(objects: Iterable[Object], url: Callable[[str], str], ca: bytes) -> Iterator[Object]:
    """Points the webhooks and the conversions of the objects to a server outside: `url` makes an address of a path."""
    bundle = base64.b64encode(ca).decode()

    def outside(config: Object) -> Object:
        return {"url": url(config.get("service", {}).get("path", "/convert")), "caBundle": bundle}

    for thing in objects:
        if thing["kind"] in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            for hook in thing["webhooks"]:
                hook["clientConfig"] = outside(hook["clientConfig"])
        conversion = thing.get("spec", {}).get("conversion") if thing["kind"] == "CustomResourceDefinition" else None
        if conversion and conversion.get("strategy") == "Webhook":
            conversion["webhook"]["clientConfig"] = outside(conversion["webhook"]["clientConfig"])
        yield thing


def unconverted(objects: Iterable[Object]) -> Iterator[Object]:
    """Types without their conversions, where no program is there to convert."""
    for thing in objects:
        spec = {key: value for key, value in thing["spec"].items() if key != "conversion"}
        yield {**thing, "spec": spec}
