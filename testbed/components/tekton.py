"""Tekton Pipelines beside the control plane: its controller and its webhook as processes, its objects from its own module. Started by
Testbed when "tekton" is among the components.

What the programs are told (arguments, environment, ServiceAccounts) is read from the Deployments that Tekton ships, so a newer version
brings its own settings. Both programs bind all interfaces, so each runs in a network namespace of its own. The webhook keeps its
configurations up to date by itself and insists on a Service there: that Service is an ExternalName for localhost, with the port of the tunnel.

`Testbed.start("tekton", tekton={"features": {"enable-api-fields": "alpha"}})` changes what its ConfigMap feature-flags says.

The resolvers are left out: they fetch from git, registries and hubs, and there is no network here. References by name need none.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed import manifests
from testbed.errors import ApiError

if TYPE_CHECKING:
    from testbed.instance import Netns, Testbed

MODULE = "github.com/tektoncd/pipeline"
NAMESPACE = "tekton-pipelines"
SERVICE = "tekton-pipelines-webhook"
WEBHOOK_PORT = 8443
APISERVER = "https://127.0.0.1:6443"
"""The instance's API server, as it is seen from inside a network namespace."""
TAG = "testbed"
"""Of the images that a real node is given: tekton-entrypoint:testbed and so on, and busybox:testbed."""
_IMAGES = {
    "-entrypoint-image": "tekton-entrypoint",
    "-nop-image": "tekton-nop",
    "-sidecarlogresults-image": "tekton-sidecarlogresults",
    "-workingdirinit-image": "tekton-workingdirinit",
    "-shell-image": "busybox",
}
_DEPLOYED = ("Deployment", "Service", "HorizontalPodAutoscaler")
_HOOKS = {
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
}
_SECRET = {"server-key.pem": "tls.key", "server-cert.pem": "tls.crt", "ca-cert.pem": "ca.crt"}
_PROBE = "testbed-probe"


class Tekton:
    name = "tekton"
    binaries = ("tekton-controller", "tekton-webhook")
    needs: tuple[str, ...] = ()

    def install(self, bed: Testbed) -> None:
        """Everything before the programs start, because they end at once if their ConfigMaps are not there."""
        self._webhook: Netns = bed.netns("tekton-webhook", expose=(WEBHOOK_PORT,))
        port = self._webhook.exposed[WEBHOOK_PORT]
        bed.apply([*_objects(bed, port), _service(port)])

    def start(self, bed: Testbed) -> None:
        for name, net in (("webhook", self._webhook), ("controller", bed.netns("tekton-controller"))):
            shipped = manifests.files(bed.module(MODULE) / "config" / f"{name}.yaml")
            pod = next(one for one in shipped if one["kind"] == "Deployment")["spec"]["template"]["spec"]
            user = f"system:serviceaccount:{NAMESPACE}:{pod['serviceAccountName']}"
            main = pod["containers"][0]
            env = {
                **_environment(main),
                "KUBECONFIG": str(bed.kubeconfig_for(user, server=APISERVER)),
                "POD_NAME": f"{name}-0",
            }
            bed.run(
                f"tekton-{name}", [bed.binary(f"tekton-{name}"), *_arguments(main.get("args", ()))], env=env, netns=net
            )

    def ready(self, bed: Testbed) -> None:
        """The webhook has filled in its configurations and answers, and the controller has seen a run."""
        bed.wait(lambda: _has_rules(bed), "Tekton's webhook to fill in its configurations")
        bed.wait(lambda: _probed(bed), "Tekton's webhook to answer")
        where = f"/apis/tekton.dev/v1/namespaces/{NAMESPACE}/taskruns/{_PROBE}"
        bed.wait(lambda: bed.get(where).get("status", {}).get("conditions"), "Tekton's controller to see a run")
        bed.delete(where)


def _objects(bed: Testbed, port: int) -> Iterator[dict[str, Any]]:
    """What Tekton ships, less its pods and what leads to them."""
    config = bed.module(MODULE) / "config"
    features = bed.options.get("tekton", {}).get("features", {})
    certificate = bed.server_certificate("tekton-webhook", (f"{SERVICE}.{NAMESPACE}.svc",))
    for one in manifests.without(manifests.files(config, config / "100-namespace", config / "300-crds"), _DEPLOYED):
        if one["kind"] == "CustomResourceDefinition":
            _lead(one["spec"].get("conversion", {}).get("webhook"), bed.ca, port)
        elif one["kind"] in _HOOKS:
            for hook in one["webhooks"]:
                _lead(hook, bed.ca, port)
        elif one["kind"] == "ConfigMap" and one["metadata"]["name"] == "feature-flags":
            one["data"] = {**one["data"], **features}
        elif one["kind"] == "Secret":
            # Given at once; the webhook would take a second round to make one of its own.
            one["data"] = {key: _base64((certificate / file).read_bytes()) for key, file in _SECRET.items()}
        yield one


def _lead(hook: dict[str, Any] | None, ca: bytes, port: int) -> None:
    if hook is not None:
        hook["clientConfig"]["service"]["port"] = port
        hook["clientConfig"]["caBundle"] = _base64(ca)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _service(port: int) -> dict[str, Any]:
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"name": "https-webhook", "port": port}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": NAMESPACE}, "spec": spec}


def _arguments(shipped: Sequence[str]) -> Iterator[str]:
    """Flags and values as shipped, with the images of a real node. Without rivals there is no leader to elect, which takes seconds."""
    yield "-disable-ha"
    for flag, value in zip(shipped[::2], shipped[1::2], strict=True):
        yield flag
        yield f"{_IMAGES[flag]}:{TAG}" if flag in _IMAGES else value


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    # SSL_CERT_… name files that are mounted into the pod.
    found = {
        one["name"]: one["value"]
        for one in container["env"]
        if "value" in one and not one["name"].startswith("SSL_CERT")
    }
    # The library that Tekton is built with serves probes on 8080 as well; two on one port make it end its other servers.
    # Its own limit of 20 questions a second to the API server would make many runs at once wait for half a minute.
    limits = {"KUBE_API_QPS": "100", "KUBE_API_BURST": "200"}
    return {**found, **limits, "SYSTEM_NAMESPACE": NAMESPACE, "PROBES_PORT": "8081"}


def _has_rules(bed: Testbed) -> bool:
    found = [one for plural in _HOOKS.values() for one in bed.objects("admissionregistration.k8s.io/v1", plural)]
    ours = [hook for one in found for hook in one["webhooks"] if hook["name"].endswith("webhook.pipeline.tekton.dev")]
    return len(ours) == 3 and all(hook.get("rules") for hook in ours)


def _probed(bed: Testbed) -> bool:
    """Creates a run that never gets a pod. Its defaults show that the webhook was asked."""
    spec = {"status": "TaskRunPending", "taskSpec": {"steps": [{"name": "none", "image": "none", "command": ["none"]}]}}
    probe = {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": _PROBE}, "spec": spec}
    where = f"/apis/tekton.dev/v1/namespaces/{NAMESPACE}/taskruns"
    try:
        if "timeout" not in bed.raw("POST", where, probe, params={"dryRun": "All"})["spec"]:
            return False
        bed.raw("POST", where, probe)
    except ApiError as error:
        if error.code == 500:  # the webhook cannot be reached yet
            return False
        raise
    return True
