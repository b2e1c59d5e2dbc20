"""A real node: the kubelet with containerd and runc, which run pods for real. Started by Testbed when "node" is among the components.

It is named `localhost` and labelled `type=real`. Pods run the images of testbed/images.py (busybox:testbed, and those of Argo and Tekton
beside their controllers); nothing is pulled. Everything of the node lives in namespaces of its own, see testbed/nodehost.py: pods, with
or without hostNetwork, reach the API server as in any cluster, each other, and the servers on this machine that `reach` was called for;
no other host, no other Service, no name server. Several instances can have a real node at the same time.

Needs root, containerd, runc and the CNI plugins. With cgroup v1 or v2, whichever the machine has mounted.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError
from testbed.images import PAUSE, images
from testbed.leftovers import cgroup_name, leftovers, sweep
from testbed.nodehost import CONTAINERD, Plan

if TYPE_CHECKING:
    from testbed.instance import Testbed

__all__ = ["Node", "leftovers", "reach", "sweep"]

NAME = "localhost"
SERVICE = "10.96.0.1"
"""Of `kubernetes` in the default namespace: the first address of the service network."""
# For tests of networks, never routed; each node has them to itself, in its own network namespace.
ADDRESS = "198.18.0.1"
PODS = "198.18.1.0/24"
PLUGINS = next(
    (path for path in map(Path, ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")) if path.is_dir()),
    Path("/usr/lib/cni"),
)
"""Where the machine's packages put the CNI plugins."""
CGROUPS = Path("/sys/fs/cgroup")
INSTALL = "sudo apt-get install containerd runc containernetworking-plugins busybox-static"


class Node:
    name = "node"
    binaries = ("kubelet",)
    needs: tuple[str, ...] = ()

    def install(self, bed: Testbed) -> None:
        check()
        sweep()

    def start(self, bed: Testbed) -> None:
        folder = bed.dir / "node"
        folder.mkdir()
        cgroup = cgroup_name(bed.keeper)
        bed.remove_cgroup_at_end(cgroup)
        make_cgroup(cgroup)
        port = bed.port()
        plan = Plan(
            folder=str(folder),
            log=str(bed.dir / "log"),
            cgroup=cgroup,
            ways=str(_ways(bed)),
            api_port=int(bed.url.rpartition(":")[2]),
            service=SERVICE,
            address=ADDRESS,
            kubelet_port=port,
            kubelet=_kubelet(bed, folder, cgroup, port),
            images=[str(image.archive()) for image in images(bed.components)],
        )
        _containerd(folder)
        plan.write(folder / "plan.json")
        here = Path(__file__).parents[2]
        paths = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
        env = {"PYTHONPATH": str(here), "PATH": paths}
        bed.run("node", [sys.executable, "-m", "testbed.nodehost", folder / "plan.json"], env=env)

    def ready(self, bed: Testbed) -> None:
        bed.wait(lambda: _is_ready(bed), "the real node to be ready")
        bed.wait((bed.dir / "node" / "images-imported").exists, "the images of the real node")


def reach(bed: Testbed, port: int) -> str:
    """Lets pods on the real node connect to a server that listens on this machine's 127.0.0.1. Returns the address to use in any pod; one with
    hostNetwork can use 127.0.0.1 as well. Components and tests may call it at any time, before the node is up too.
    """
    _ways(bed).mkdir(exist_ok=True)
    (_ways(bed) / str(port)).touch()
    return f"{ADDRESS}:{port}"


def _ways(bed: Testbed) -> Path:
    return bed.dir / "node-ways"


def _is_ready(bed: Testbed) -> bool:
    node = bed.found(f"/api/v1/nodes/{NAME}") or {}
    conditions = node.get("status", {}).get("conditions", [])
    tainted = any(taint["key"].startswith("node.kubernetes.io/") for taint in node.get("spec", {}).get("taints", []))
    return not tainted and any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def check() -> None:
    """Says in one line what the machine lacks."""
    if os.geteuid() != 0:
        raise TestbedError(
            "the real node needs root (containers, cgroups); run as root, or leave the component node out"
        )
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    lacking = [
        name for name in ("containerd", "containerd-shim-runc-v2", "ctr", "runc") if not shutil.which(name, path=path)
    ]
    lacking += [f"the CNI plugin {name}" for name in ("ptp", "host-local", "loopback") if not (PLUGINS / name).exists()]
    if lacking:
        raise TestbedError(f"the real node needs {', '.join(lacking)}; install with: {INSTALL}")
    if not _trees():
        raise TestbedError(
            f"the real node needs cgroups mounted at {CGROUPS} (v2, or v1 with cpu, cpuacct, cpuset, memory and pids)"
        )


def _trees() -> list[Path]:
    """Where a cgroup must be made: in the one tree of cgroup v2, or in each tree of v1. None when controllers are missing."""
    wanted = {"cpu", "cpuset", "memory", "pids"}
    unified = CGROUPS / "cgroup.controllers"
    if unified.exists():
        return [CGROUPS] if wanted <= set(unified.read_text().split()) else []
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    trees = [Path(words[1]) for words in mounts if words[2] == "cgroup" and Path(words[1]).parent == CGROUPS]
    return trees if wanted | {"cpuacct"} <= {part for tree in trees for part in tree.name.split(",")} else []


def make_cgroup(name: str) -> None:
    for tree in _trees():
        if tree == CGROUPS:
            # All that the kubelet knows and the machine has; it refuses to start when one is missing.
            known = {"cpu", "cpuset", "hugetlb", "memory", "pids"} & set(
                (tree / "cgroup.controllers").read_text().split()
            )
            try:
                (tree / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in sorted(known)))
            except OSError as error:
                raise TestbedError(
                    f"the cgroups at {CGROUPS} cannot be shared out ({error}); the real node cannot run here"
                ) from None
        (tree / name).mkdir()
        for setting in ("cpuset.cpus", "cpuset.mems"):
            # With v1 a new cpuset is empty, and no process may enter it.
            if tree != CGROUPS and (tree / setting).exists():
                (tree / name / setting).write_text((tree / setting).read_text())


def _kubelet(bed: Testbed, folder: Path, cgroup: str, port: int) -> list[str]:
    tls = bed.server_certificate("kubelet")
    names = folder / "resolv.conf"
    names.write_text("")
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "tlsCertFile": str(tls / "tls.crt"),
        "tlsPrivateKeyFile": str(tls / "tls.key"),
        "authentication": {"x509": {"clientCAFile": str(tls / "ca.crt")}, "anonymous": {"enabled": False}},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "resolvConf": str(names),
        "volumePluginDir": str(folder / "plugins"),
        # The disk is the machine's own: it may be full without harm to a test.
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 300,
        "eventRecordQPS": 0,
    }
    settings = folder / "kubelet.json"
    settings.write_text(json.dumps(config))
    who = bed.kubeconfig_for(f"system:node:{NAME}", ("system:nodes",))
    return [
        str(bed.binary("kubelet")),
        f"--config={settings}",
        f"--kubeconfig={who}",
        f"--hostname-override={NAME}",
        f"--node-ip={ADDRESS}",
        "--node-labels=type=real",
    ]


def _containerd(folder: Path) -> None:
    """Its settings, and the pods' network: a pair of devices for each pod, no bridge, nothing to remove."""
    cni = folder / "cni"
    cni.mkdir()
    network = {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": PODS}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": "/run/cni",
                },
            }
        ],
    }
    (cni / "10-pods.conflist").write_text(json.dumps(network))
    restrict = "true" if not _may_lower_oom_score() else "false"
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    (folder / "containerd.toml").write_text(
        f"""version = 2
disabled_plugins = ["io.containerd.internal.v1.opt"] # it would make a folder in the host's /opt
[grpc]
address = "{CONTAINERD}"
[{cri}]
sandbox_image = "{PAUSE}"
disable_apparmor = true
restrict_oom_score_adj = {restrict}
stream_server_address = "127.0.0.1"
[{cri}.cni]
bin_dir = "{PLUGINS}"
conf_dir = "{cni}"
[{cri}.containerd]
snapshotter = "SNAPSHOTTER"
default_runtime_name = "runc"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""
    )


def _may_lower_oom_score() -> bool:
    """Whether we have CAP_SYS_RESOURCE, without which containers cannot be given a lower OOM score than our own."""
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split()[0], 16)
    return bool(capabilities >> 24 & 1)
