"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler: the flags that make them run on 127.0.0.1 of one small machine. Called by instance.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from testbed.certificates import signing_key
from testbed.errors import ApiError

if TYPE_CHECKING:
    from testbed.instance import Testbed

SERVICE_NETWORK = "10.96.0.0/16"


def start_store(bed: Testbed) -> str:
    client, peer = bed.port(), bed.port()
    url = f"http://127.0.0.1:{client}"
    bed.run(
        "etcd",
        [
            bed.binary("etcd"),
            f"--data-dir={bed.dir / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",  # nothing here must survive a power cut
            "--log-level=warn",
        ],
    )
    return url


def start_apiserver(bed: Testbed, store: str, port: int) -> None:
    tls = bed.server_certificate(
        "apiserver", ("127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc", "10.96.0.1")
    )
    proxy = bed.authority.issue("front-proxy-client").write(bed.dir / "certificates" / "front-proxy", bed.ca)
    kubelet = bed.authority.issue("kube-apiserver-kubelet-client", ("system:masters",)).write(
        bed.dir / "certificates" / "kubelet-client", bed.ca
    )
    private, public = signing_key()
    (tls / "sa.key").write_bytes(private)
    (tls / "sa.pub").write_bytes(public)
    bed.run(
        "kube-apiserver",
        [
            bed.binary("kube-apiserver"),
            f"--etcd-servers={store}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # it would publish a loopback address, which is not allowed
            f"--tls-cert-file={tls / 'tls.crt'}",
            f"--tls-private-key-file={tls / 'tls.key'}",
            f"--client-ca-file={tls / 'ca.crt'}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={tls / 'sa.pub'}",
            f"--service-account-signing-key-file={tls / 'sa.key'}",
            f"--requestheader-client-ca-file={tls / 'ca.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={proxy / 'tls.crt'}",
            f"--proxy-client-key-file={proxy / 'tls.key'}",
            f"--kubelet-client-certificate={kubelet / 'tls.crt'}",
            f"--kubelet-client-key={kubelet / 'tls.key'}",
            f"--kubelet-certificate-authority={tls / 'ca.crt'}",
            "--kubelet-preferred-address-types=Hostname,InternalIP",
            # Tests create and delete in bursts; fairness among clients would only slow them down.
            "--enable-priority-and-fairness=false",
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
            "--profiling=false",
            "--shutdown-delay-duration=0s",
        ],
    )


def answers(bed: Testbed) -> bool:
    try:
        return bool(bed.raw("GET", "/readyz") == "ok")
    except (ApiError, httpx2.TransportError):
        return False


def start_controllers(bed: Testbed) -> None:
    """The controller manager with all its controllers, and the scheduler."""
    tls = bed.dir / "certificates" / "apiserver"
    manager = bed.kubeconfig_for("system:kube-controller-manager")
    bed.run(
        "kube-controller-manager",
        [
            bed.binary("kube-controller-manager"),
            f"--kubeconfig={manager}",
            f"--authentication-kubeconfig={manager}",
            f"--authorization-kubeconfig={manager}",
            "--bind-address=127.0.0.1",
            f"--secure-port={bed.port()}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={tls / 'sa.key'}",
            f"--root-ca-file={tls / 'ca.crt'}",
            "--leader-elect=false",
            "--concurrent-gc-syncs=10",
            f"--flex-volume-plugin-dir={bed.dir / 'flex'}",  # it would make a folder on the machine
            "--kube-api-qps=200",
            "--kube-api-burst=300",
            "--profiling=false",
        ],
    )
    scheduler = bed.kubeconfig_for("system:kube-scheduler")
    bed.run(
        "kube-scheduler",
        [
            bed.binary("kube-scheduler"),
            f"--kubeconfig={scheduler}",
            f"--authentication-kubeconfig={scheduler}",
            f"--authorization-kubeconfig={scheduler}",
            "--bind-address=127.0.0.1",
            f"--secure-port={bed.port()}",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=300",
            "--profiling=false",
        ],
    )


def controllers_ready(bed: Testbed) -> None:
    """The controller manager is at work when the default namespace has its ServiceAccount."""
    path = "/api/v1/namespaces/default/serviceaccounts/default"
    bed.wait(lambda: bed.found(path), "the default ServiceAccount (kube-controller-manager)")
