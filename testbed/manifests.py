"""The objects that the projects ship (types, roles, webhook configurations), read from the folders of their Go modules. Called by the components.

None of it is committed here: what is installed is what the pinned version ships, less what only makes sense inside a cluster.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
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
    found: list[Object] = []
    for path in paths:
        for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
            with file.open() as text:
                found += [thing for thing in yaml.load_all(text, _Loader) if thing and "kind" in thing]
    return found


def kustomize(folder: Path) -> list[Object]:
    """The objects of a kustomization, rendered by the built kubectl; kept beside the programs, since a pinned folder never changes."""
    key = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    kept = binaries.path("kubectl").parent / f"kustomize-{key}.yaml"
    if not kept.exists():
        command = [str(binaries.path("kubectl")), "kustomize", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise TestbedError(f"rendering {folder} failed; kubectl said:\n{done.stderr.strip()[-800:]}")
        half = kept.with_name(f".{kept.name}.{os.getpid()}")
        half.write_text(done.stdout)
        half.replace(kept)
    return files(kept)


def without(objects: Iterable[Object], kinds: Iterable[str] = DEPLOYED) -> list[Object]:
    left_out = set(kinds)
    return [thing for thing in objects if thing["kind"] not in left_out]


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
