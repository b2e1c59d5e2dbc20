"""What is installed for the controller: the manifests, the Helm chart, and what `penstock controller check` says of a cluster."""

from __future__ import annotations

import itertools
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from penstock.cli.main import cli, run
from penstock.controller.install import chart
from penstock.controller.install.check import findings, path_of
from penstock.controller.install.manifests import NOBODY, Install, manifests

ENGINES = ("argo", "tekton", "jobset")
GROUPS = {"argo": "argoproj.io", "tekton": "tekton.dev", "jobset": "jobset.x-k8s.io"}
SUBSETS = [some for count in range(4) for some in itertools.combinations(ENGINES, count)]


def one(install: Install, kind: str, name: str = "penstock-controller") -> dict[str, Any]:
    return next(found for found in manifests(install) if found["kind"] == kind and found["metadata"]["name"] == name)


def rules(
    install: Install, kind: str = "ClusterRole", name: str = "penstock-controller"
) -> Iterator[tuple[str, str, str]]:
    for rule in one(install, kind, name)["rules"]:
        yield from itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])


# -- manifests ----------------------------------------------------------------------------------------------------------


def test_the_controller_may_not_do_more_than_it_does() -> None:
    may = set(rules(Install()))
    assert not any("*" in part for rule in may for part in rule)
    assert {rule for rule in may if rule[1] == "workloads"} == {
        ("kueue.x-k8s.io", "workloads", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")
    }
    assert not any(resource in ("secrets", "configmaps", "clusterroles") for _, resource, _ in may)
    assert {verb for _, resource, verb in may if resource == "pods"} == {"get", "list", "watch", "patch", "delete"}
    writes = {rule for rule in may if rule[2] not in ("get", "list", "watch")}
    assert {rule for rule in writes if rule[0] not in ("", "kueue.x-k8s.io")} == {
        ("argoproj.io", "workflows", "patch"),
        ("tekton.dev", "pipelineruns", "patch"),
        ("tekton.dev", "taskruns", "patch"),
        ("tekton.dev", "taskruns", "delete"),
        ("batch", "jobs", "patch"),
        ("events.k8s.io", "events", "create"),
        ("events.k8s.io", "events", "patch"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "patch"),
    }
    assert {rule[1] for rule in writes if rule[0] == ""} == {"pods"}
    hooks = [
        rule for rule in one(Install(), "ClusterRole")["rules"] if "mutatingwebhookconfigurations" in rule["resources"]
    ]
    assert [rule["resourceNames"] for rule in hooks] == [["admission.penstock"]]


def test_of_its_own_namespace_it_has_one_lease_and_one_secret() -> None:
    own = one(Install(), "Role")["rules"]
    assert {tuple(rule.get("resourceNames", ())) for rule in own if rule["verbs"] != ["create"]} == {
        ("penstock-controller",),
        ("penstock-webhooks",),
    }


def test_authors_of_workflows_write_no_pods_and_no_status() -> None:
    may = set(rules(Install(), name="penstock-workflow-author"))
    writes = {resource for _, resource, verb in may if verb not in ("get", "list", "watch")}
    assert {"workflows", "pipelineruns", "jobsets"} <= writes
    assert not writes & {"pods", "jobs", "workloads", "secrets"} and not any("/" in resource for resource in writes)
    assert ("", "pods/log", "get") in may and not any(resource == "secrets" for _, resource, _ in may)


def test_the_pod_is_hardened_and_the_replicas_are_apart() -> None:
    spec = one(Install(replicas=3), "Deployment")["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["replicas"] == 3
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"] == {
        "type": "RuntimeDefault"
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"livenessProbe", "readinessProbe"} <= container.keys() and "memory" in container["resources"]["limits"]
    assert pod["affinity"]["podAntiAffinity"]
    assert one(Install(), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_the_command_of_the_pod_is_one_that_there_is() -> None:
    (container,) = one(Install(engines=("argo",)), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert "--engines=argo" in container["args"]
    group = cli.get_command(None, "controller")  # type: ignore[arg-type]
    command = group.commands["run"]  # type: ignore[union-attr]
    words = [word for word in container["args"][2:]]
    assert command.make_context("run", words).params["webhook_port"] == 9443


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_left_out_is_named_nowhere(engine: str) -> None:
    rest = tuple(name for name in ENGINES if name != engine)
    assert GROUPS[engine] in json.dumps(manifests(Install()))
    assert GROUPS[engine] not in json.dumps(manifests(Install(engines=rest)))


def test_another_namespace_is_in_every_object() -> None:
    assert "penstock-system" not in json.dumps(manifests(Install("queues")))
    assert "system:serviceaccount:queues:penstock-controller" in json.dumps(manifests(Install("queues")))


def test_a_controller_out_of_cluster_is_reached_by_its_url() -> None:
    found = manifests(Install(url="https://127.0.0.1:9443"))
    assert not {"Deployment", "Service", "PodDisruptionBudget"} & {each["kind"] for each in found}
    hooks = found[-1]["webhooks"]
    assert {hook["clientConfig"]["url"].rpartition("/")[0] for hook in hooks} == {"https://127.0.0.1:9443"}


def test_workflows_wait_for_the_webhook_and_pods_do_not() -> None:
    hooks = {hook["name"].partition(".")[0]: hook for hook in manifests(Install())[-1]["webhooks"]}
    assert {name: hook["failurePolicy"] for name, hook in hooks.items()} == {
        "workflows": "Fail",
        "copies": "Fail",
        "pods": "Ignore",
    }
    assert hooks["pods"]["timeoutSeconds"] == 2
    assert manifests(Install())[-1]["metadata"]["name"] < "kueue-mutating-webhook-configuration"


# -- the image ----------------------------------------------------------------------------------------------------------


def test_the_image_is_what_the_pod_expects() -> None:
    """Its user, and a program that takes the pod's arguments. What is installed in it is an extra of the package."""
    root = Path(__file__).parents[2]
    text = (root / "deploy" / "Containerfile").read_text()
    common = text.partition(" AS common\n")[2].partition("FROM ")[0]
    lines = (common + text.partition(" AS controller\n")[2]).splitlines()
    said = dict(line.split(" ", 1) for line in lines if line.split(" ", 1)[0] in ("USER", "ENTRYPOINT", "CMD"))
    assert said["USER"] == f"{NOBODY}:{NOBODY}"
    (program,) = json.loads(said["ENTRYPOINT"])
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert program in project["scripts"]
    extras = {name for line in lines for name in re.findall(r"(?:\.|penstock)\[(\w+)\]", line)}
    assert extras == {"controller"} and extras <= set(project["optional-dependencies"])
    (container,) = one(Install(), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert json.loads(said["CMD"])[:2] == container["args"][:2] == ["controller", "run"]


# -- the Helm chart -----------------------------------------------------------------------------------------------------


def rendered(text: str, namespace: str, values: dict[str, Any]) -> list[Any]:
    """What Helm makes of the few things that the chart uses."""
    lines: list[str] = []
    shown = [True]
    for line in text.splitlines():
        if found := re.fullmatch(r"\{\{- if (.*) \}\}", line):
            names = re.findall(r'has "(\w+)" \.Values\.engines', found[1])
            assert names and (len(names) == 1 or found[1].startswith("or "))
            shown.append(shown[-1] and any(name in values["engines"] for name in names))
        elif line == "{{- end }}":
            shown.pop()
        elif shown[-1]:
            lines.append(line)
    assert shown == [True]
    whole = "\n".join(lines)
    places = {
        "{{ .Release.Namespace }}": namespace,
        "{{ .Values.image | quote }}": json.dumps(values["image"]),
        "{{ .Values.replicas }}": str(values["replicas"]),
        '{{ join "," .Values.engines }}': ",".join(values["engines"]),
    }
    for place, value in places.items():
        whole = whole.replace(place, value)
    assert "{{" not in whole
    return [document for document in yaml.safe_load_all(whole) if document is not None]


@pytest.mark.parametrize("engines", SUBSETS)
def test_the_chart_is_the_manifests(engines: tuple[str, ...]) -> None:
    made = chart.files("1.2.3")
    values = yaml.safe_load(made["values.yaml"]) | {"engines": list(engines), "image": "other/image:1", "replicas": 5}
    found = rendered(made["templates/controller.yaml"], "somewhere", values)
    wanted = manifests(Install("somewhere", "other/image:1", 5, engines))
    assert found == [each for each in wanted if each["kind"] != "Namespace"]


def test_the_values_of_the_chart_are_the_defaults() -> None:
    values = yaml.safe_load(chart.files("1.2.3")["values.yaml"])
    default = Install()
    assert values == {"image": f"{default.image}:1.2.3", "replicas": default.replicas, "engines": list(default.engines)}


# -- check --------------------------------------------------------------------------------------------------------------


def cluster(install: Install) -> dict[str, Any]:
    """A cluster in which everything is as it should be: path -> object."""
    admission = [{"name": "mutatingadmissionpolicies"}]
    found: dict[str, Any] = {
        "/version": {"major": "1", "minor": "36+", "gitVersion": "v1.36.4"},
        "/apis/admissionregistration.k8s.io/v1": {"resources": admission},
        "/apis/kueue.x-k8s.io": {"versions": [{"version": "v1beta1"}, {"version": "v1beta2"}]},
        "/apis/argoproj.io/v1alpha1": {"resources": [{"name": "workflows"}]},
        "/apis/tekton.dev/v1": {"resources": [{"name": "pipelineruns"}]},
        "/apis/jobset.x-k8s.io/v1alpha2": {"resources": [{"name": "jobsets"}]},
    }
    for each in json.loads(json.dumps(manifests(install))):
        for hook in each.get("webhooks", ()):
            hook["clientConfig"]["caBundle"] = "eA=="
        if each["kind"] == "Deployment":
            each["status"] = {"readyReplicas": each["spec"]["replicas"]}
        each["metadata"]["uid"] = "what the cluster adds"
        found[path_of(each)] = each
    return found


def states(there: dict[str, Any], install: Install) -> dict[str, tuple[str, str, str]]:
    return {each.check: (each.state, each.text, each.fix) for each in findings(there.get, install)}


@pytest.mark.parametrize(
    "install", [Install(), Install("queues", engines=("jobset",)), Install(url="https://127.0.0.1:1")]
)
def test_what_is_as_it_should_be_has_no_problem(install: Install) -> None:
    assert {state for state, _, _ in states(cluster(install), install).values()} == {"ok"}


def test_an_old_kubernetes() -> None:
    there = cluster(Install()) | {"/apis/admissionregistration.k8s.io/v1": {"resources": []}}
    assert states(there, Install())["kubernetes"][0] == "problem"
    assert "feature-gates" in states(there, Install())["kubernetes"][2]
    old = there | {"/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.1"}}
    assert "too old" in states(old, Install())["kubernetes"][1] and "policies" not in states(old, Install())


def test_kueue_missing_or_older() -> None:
    there = cluster(Install())
    del there["/apis/kueue.x-k8s.io"]
    assert states(there, Install())["kueue"][:2] == ("problem", "Kueue is not there")
    there["/apis/kueue.x-k8s.io"] = {"versions": [{"version": "v1beta1"}]}
    assert "older" in states(there, Install())["kueue"][1]


def test_an_engine_that_is_not_there_is_no_problem() -> None:
    there = cluster(Install())
    del there["/apis/tekton.dev/v1"]
    assert (
        states(there, Install())["tekton"][0] == "note" and "--without tekton" in states(there, Install())["tekton"][2]
    )


def test_what_is_missing_and_what_was_changed_is_named() -> None:
    there = cluster(Install())
    policy = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/penstock-keep-pods"
    binding = policy.replace("policies/", "policybindings/")
    del there[binding]
    there[policy]["spec"]["validations"].pop()
    found = [each for each in findings(there.get, Install()) if each.check == "policies"]
    assert [each.text for each in found] == [
        "not installed: ValidatingAdmissionPolicyBinding penstock-keep-pods",
        "not as this version installs it: ValidatingAdmissionPolicy penstock-keep-pods (spec.validations)",
    ]
    assert all("kubectl apply" in each.fix for each in found)


def test_rights_that_were_widened_are_a_difference() -> None:
    there = cluster(Install())
    there["/apis/rbac.authorization.k8s.io/v1/clusterroles/penstock-controller"]["rules"].append({"verbs": ["*"]})
    assert states(there, Install())["rights"][0] == "problem"


def test_replicas_image_and_resources_are_everyones_choice() -> None:
    there = cluster(Install(image="mine:1", replicas=4))
    assert {state for state, _, _ in states(there, Install()).values()} == {"ok"}


def test_a_controller_that_does_not_run() -> None:
    there = cluster(Install())
    deployment = there["/apis/apps/v1/namespaces/penstock-system/deployments/penstock-controller"]
    deployment["status"] = {"readyReplicas": 1}
    assert states(there, Install())["controller"][:2] == ("note", "1 of 2 replicas are ready")
    deployment["status"] = {}
    for hook in there["/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/admission.penstock"][
        "webhooks"
    ]:
        del hook["clientConfig"]["caBundle"]
    found = states(there, Install())
    assert (found["controller"][0], found["certificate"][0]) == ("problem", "problem")


def test_notes_about_the_configuration_of_kueue() -> None:
    there = cluster(Install())
    container = {"image": "registry.example/kueue:v0.19.2"}
    manager = {
        "metadata": {"name": "kueue-controller-manager", "namespace": "kueue-system"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    there["/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fname%3Dkueue"] = {"items": [manager]}
    config = "manageJobsWithoutQueueName: true\nintegrations:\n  frameworks:\n  - pod\n"
    there["/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"] = {"data": {"c.yaml": config}}
    found = [each for each in findings(there.get, Install()) if each.check.startswith("kueue")]
    assert "kueue:v0.19.2" in found[0].text
    assert [each.state for each in found] == ["ok", "note", "note", "note"]
    assert ["manages Jobs" in found[1].text, "waitForPodsReady" in found[2].text, "pods" in found[3].text] == [True] * 3


# -- commands -----------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_manifests() -> None:
    words = ["controller", "manifests", "-n", "queues", "--image", "mine:1", "--replicas", "1", "--without", "tekton"]
    said = CliRunner().invoke(cli, words)
    assert said.exit_code == 0
    assert list(yaml.safe_load_all(said.output)) == manifests(Install("queues", "mine:1", 1, ("argo", "jobset")))


@pytest.mark.parametrize(
    ("words", "warned"), [([], True), (["--image", "mine:1"], False), (["--url", "https://127.0.0.1:9443"], False)]
)
def test_an_image_that_nobody_has_named_is_warned_of(words: list[str], warned: bool) -> None:
    """On stderr: what is printed goes into kubectl."""
    said = CliRunner().invoke(cli, ["controller", "manifests", *words])
    assert said.exit_code == 0
    assert ("--image registry.example/penstock:" in said.stderr) is warned and bool(said.stderr) is warned
    assert len(list(yaml.safe_load_all(said.stdout))) > 10 and "warning" not in said.stdout


def stand_in(folder: Path, there: dict[str, Any]) -> str:
    """A kubectl that knows these paths."""
    (folder / "there.json").write_text(json.dumps(there))
    program = folder / "kubectl.py"
    program.write_text(
        "import json, sys, pathlib\n"
        "there = json.loads(pathlib.Path(__file__).with_name('there.json').read_text())\n"
        "path = sys.argv[sys.argv.index('--raw') + 1]\n"
        "if path not in there: sys.exit('Error from server (NotFound): the server could not find the requested resource')\n"
        "if there[path] is None: sys.exit('Error from server (Forbidden): no')\n"
        "print(json.dumps(there[path]))\n"
    )
    return f"{sys.executable} {program}"


def test_check_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    there = cluster(Install())
    monkeypatch.setenv("PENSTOCK_KUBECTL", stand_in(tmp_path, there))
    assert run(["controller", "check", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["healthy"] is True
    del there["/api/v1/namespaces/penstock-system/services/penstock-webhooks"]
    monkeypatch.setenv("PENSTOCK_KUBECTL", stand_in(tmp_path, there))
    assert run(["controller", "check"]) == 1
    said = capfd.readouterr()
    assert "Service penstock-webhooks" in said.out and "kubectl apply" in said.err


def test_check_without_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    there = cluster(Install()) | {"/apis/rbac.authorization.k8s.io/v1/clusterroles/penstock-controller": None}
    monkeypatch.setenv("PENSTOCK_KUBECTL", stand_in(tmp_path, there))
    assert run(["controller", "check"]) == 2
    assert "P895" in capfd.readouterr().err


def test_check_without_kubectl(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("PENSTOCK_KUBECTL", raising=False)
    assert run(["controller", "check"]) == 4
    assert "P870" in capfd.readouterr().err


def test_run_with_an_engine_that_there_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["controller", "run", "--engines", "argoo"]) == 2
    said = capfd.readouterr().err
    assert "P897" in said and '"argo"' in said


def test_run_without_its_packages(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "penstock.controller.cluster.main", None)
    assert run(["controller", "run"]) == 2
    assert "penstock[controller]" in capfd.readouterr().err
