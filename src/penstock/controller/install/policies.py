"""Admission policies of the API server: they hold what a queued workflow creates, and let only the controller let it go. Used by `manifests`.

They are part of the API server, so they cannot be down. A mutating policy holds:

    penstock-hold-pods        a pod with the label `penstock/queue` is created with the scheduling gate `penstock/admission`
    penstock-hold-taskruns    a TaskRun with the label is created as TaskRunPending, but for `finally`
    penstock-no-hurry         a pipeline inside a pipeline has no time limit of its own: it would count the time in the queue
    penstock-one-queue-…      what has the label is taken out of Kueue's hands: it would wait in a second queue

A validating policy keeps: nobody but the controller removes a gate, changes the queue of what has been created, or writes its Workloads. All of
them match by label, so other objects are not looked at.

Other controllers go on writing what they write: a rule compares only what is Penstock's before and after. To switch a rule off in an emergency, delete
its binding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.controller.install import cel
from penstock.controller.names import (
    PARALLELISM,
    PLACE,
    POD_GATE,
    POD_SET,
    PRIORITY,
    QUEUE,
    QUEUED,
    SUSPEND,
    UNIT,
    WORKFLOW_UID,
)
from penstock.controller.objects import ApiResource
from penstock.formats.gates.marks import NEEDS, REQUESTS

Manifest = dict[str, Any]
API = "admissionregistration.k8s.io/v1"
ENGINES = ("argo", "tekton", "jobset")
OURS = "penstock/"
"""Labels and annotations that begin so are Penstock's."""
LABELS = {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/component": "admission"}

KUEUE_GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
KUEUE_MANAGED = "kueue.x-k8s.io/managed"
"""Kueue's label and finalizer on pods that it manages itself."""
GATED_BY = "kueue.x-k8s.io/admission-gated-by"

_WORKFLOWS = ("argoproj.io", "v1alpha1", "workflows")
_PIPELINE_RUNS = ("tekton.dev", "v1", "pipelineruns")
_TASK_RUNS = ("tekton.dev", "v1", "taskruns")
_JOB_SETS = ("jobset.x-k8s.io", "v1alpha2", "jobsets")
_JOBS = ("batch", "v1", "jobs")
_PODS = ("", "v1", "pods")
_WORKLOADS = ("kueue.x-k8s.io", "v1beta2", "workloads")
_WORKLOAD_STATUS = ("kueue.x-k8s.io", "v1beta2", "workloads/status")

_MAY_CREATE_PODS = "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()"
_NO_ENGINE = {"name": "may-not-create-pods", "expression": f"!{_MAY_CREATE_PODS}"}

Target = tuple[str, str, str]
"""Group, version, plural."""


def policies(
    users: Sequence[str], engines: Collection[str] = ENGINES, others: Sequence[ApiResource] = ()
) -> list[Manifest]:
    """All policies with their bindings. `users`: who may let go what is held, the controller's service account as a rule. `others`: the main kinds of
    engines that are not ours; what is special about these is for their authors to keep."""
    found = [*_hold_pods(), *_one_queue(engines), *_keep_pods(users), *_keep_workloads(users)]
    if "argo" in engines:
        found += _keep_workflows(users)
    if "tekton" in engines:
        found += [*_hold_task_runs(), *_no_hurry(), *_keep_task_runs(users)]
    if "jobset" in engines:
        found += [*_keep_jobs(users), *_keep_job_sets(users)]
    if runs := [_WORKFLOWS] * ("argo" in engines) + [_PIPELINE_RUNS, _TASK_RUNS] * ("tekton" in engines):
        found += _went_through(runs)
    if runs or others:
        found += _keep_queue(users, [*runs, *map(target_of, others)])
        found += _label_first(users, [*runs, *map(target_of, others)])
    if whole := [*runs, *[_JOB_SETS] * ("jobset" in engines), *map(target_of, others)]:
        found += _keep_needs(users, whole)
    return found


def target_of(resource: ApiResource) -> Target:
    group, _, version = resource.api.rpartition("/")
    return group, version, resource.plural


# -- mutating: hold -----------------------------------------------------------------------------------------------------


def _hold_pods() -> list[Manifest]:
    """The gate is merged by its name, so a pod that has it already does not get it twice. What a user says in `penstock/pod-set` is removed.

    Never asked again: the controller's webhook comes after this, and may have let the pod go."""
    gate = (
        f"Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: {cel.text(POD_GATE)}}}]}}}}"
    )
    forged = cel.removal(cel.annotation("object", POD_SET), cel.pointer("metadata", "annotations", POD_SET))
    return _mutating("penstock-hold-pods", [_PODS], QUEUED, [_applied(gate), _patched(forged)], again=False)


def _hold_task_runs() -> list[Manifest]:
    is_finally = f"{cel.label('object', 'tekton.dev/memberOf')}.orValue('') == 'finally'"
    has_status = "object.spec.?status.orValue('') != ''"
    pending = "JSONPatch{op: 'add', path: '/spec/status', value: 'TaskRunPending'}"
    change = f"({is_finally} || {has_status}) ? [] : [{pending}]"
    return _mutating("penstock-hold-taskruns", [_TASK_RUNS], QUEUED, [_patched(change)], again=False)


def _no_hurry() -> list[Manifest]:
    """Tekton gives a PipelineRun without a limit an hour. The limit of the run around it counts all the same."""
    owned = {"name": "has-an-owner", "expression": "has(object.metadata.ownerReferences)"}
    limit = "JSONPatch{op: 'add', path: '/spec/timeouts', value: {'pipeline': '0'}}"
    change = [_patched(f"has(object.spec.timeouts) ? [] : [{limit}]")]
    return _mutating("penstock-no-hurry", [_PIPELINE_RUNS], QUEUED, change, again=False, conditions=[owned])


def _one_queue(engines: Collection[str]) -> list[Manifest]:
    """Kueue's label goes from everything that has ours, and from pods all that Kueue's own webhook adds: it holds them also without a label if it
    manages everything, or gives them the queue `default`. So this is asked again after the webhooks."""
    label = cel.removal(cel.label("object", QUEUE), cel.pointer("metadata", "labels", QUEUE))
    managed = cel.removal(cel.label("object", KUEUE_MANAGED), cel.pointer("metadata", "labels", KUEUE_MANAGED))
    gates = _filtered("object.spec.?schedulingGates", "/spec/schedulingGates", "g", "g.name", KUEUE_GATES)
    finalizer = _filtered("object.metadata.?finalizers", "/metadata/finalizers", "f", "f", (KUEUE_MANAGED,))
    found = _mutating(
        "penstock-one-queue-pods",
        [_PODS],
        QUEUED,
        [_patched(f"{label} + {managed} + {gates} + {finalizer}")],
        again=True,
    )
    if "jobset" in engines:
        found += _one_queue_for_jobs(label)
    if "tekton" in engines:
        # A pipeline in a pipeline is a child like a TaskRun. What a user creates has no owner, and keeps its label for the webhook.
        owned = {"name": "has-an-owner", "expression": "has(object.metadata.ownerReferences)"}
        runs = [_PIPELINE_RUNS, _TASK_RUNS]
        change = [_patched(label)]
        found += _mutating("penstock-one-queue-runs", runs, QUEUED, change, again=False, conditions=[owned])
    return found


def _one_queue_for_jobs(label: str) -> list[Manifest]:
    """Where there is a LocalQueue called `default`, Kueue gives its label to a JobSet that has none, and suspends it. The API server asks a policy again
    only if it was asked before the webhooks, when a new JobSet has Kueue's label and not yet ours: so there is a policy for each label."""
    by_kueue = f"{cel.annotation('object', SUSPEND)}.orValue('') == 'false' && object.spec.?suspend.orValue(false)"
    goes_on = f"({by_kueue} ? [JSONPatch{{op: 'replace', path: '/spec/suspend', value: false}}] : [])"
    if_ours = f"{cel.has(cel.label('object', QUEUED))} ? {label} + {goes_on} : []"
    return [
        *_mutating(
            "penstock-one-queue-jobs", [_JOB_SETS, _JOBS], QUEUED, [_patched(f"{label} + {goes_on}")], again=True
        ),
        *_mutating("penstock-one-queue-jobsets", [_JOB_SETS], QUEUE, [_patched(if_ours)], again=True),
    ]


def _filtered(optional: str, path: str, one: str, name: str, without: Sequence[str]) -> str:
    """A list of JSON patches: one that takes some entries out of a list, or none if there are none of them."""
    names = f"[{', '.join(map(cel.text, without))}]"
    rest = f"{optional}.orValue([]).filter({one}, !({name} in {names}))"
    change = f"JSONPatch{{op: 'replace', path: '{path}', value: {rest}}}"
    return f"({optional}.orValue([]).exists({one}, {name} in {names}) ? [{change}] : [])"


# -- validating: keep ---------------------------------------------------------------------------------------------------


def _keep_pods(users: Sequence[str]) -> list[Manifest]:
    def gated(pod: str) -> str:
        return f"{pod}.spec.?schedulingGates.orValue([]).exists(g, g.name == {cel.text(POD_GATE)})"

    rules = [
        _rule(
            cel.implies(gated("oldObject"), gated("object")),
            f"the scheduling gate {POD_GATE} is removed by the Penstock controller alone, when the pod's stage is admitted. "
            "What it waits for: penstock why, or kubectl describe the workflow",
        ),
        _rule(
            f"{cel.same_label(QUEUED)} && {cel.same_label(QUEUE)}",
            f"the labels {QUEUED} and {QUEUE} of a pod are not changed. Delete the workflow, and create it with another queue",
        ),
        _rule(
            f"{cel.annotation('object', POD_SET)} == {cel.annotation('oldObject', POD_SET)}",
            f"the annotation {POD_SET} is written by the Penstock controller alone",
        ),
    ]
    return _validating("penstock-keep-pods", [_PODS], [QUEUED], rules, users)


def _keep_queue(users: Sequence[str], runs: Sequence[Target]) -> list[Manifest]:
    """Tekton copies labels and annotations of a Pipeline and a Task to a run that has started, Argo those that `workflowMetadata` names: what is
    not there yet may be added, but for the label that holds."""
    rules = [
        _rule(
            cel.implies(cel.has(cel.label("oldObject", QUEUE)), cel.same_label(QUEUE)),
            f"the label {QUEUE} is not changed after creation. Delete the run, and create it with another queue",
        ),
        _priority("run"),
        _rule(
            cel.kept("labels", OURS, but=[UNIT]),
            f"labels that begin with {OURS} are not changed after creation. Delete the run, and create it anew",
        ),
        _rule(
            cel.kept("annotations", OURS, but=[UNIT]),
            f"annotations that begin with {OURS} are not changed after creation. Delete the run, and create it anew",
        ),
    ]
    return _validating("penstock-keep-queue", runs, [QUEUE, QUEUED], rules, users)


def _priority(what: str) -> Manifest:
    """Read when the Workloads of the stages are made: some would have the old one."""
    return _rule(
        cel.implies(cel.has(cel.label("oldObject", PRIORITY)), cel.same_label(PRIORITY)),
        f"the label {PRIORITY} is not changed after creation. Delete the {what}, and create it with another class",
    )


def _keep_needs(users: Sequence[str], runs: Sequence[Target]) -> list[Manifest]:
    """What a workflow that is queued as a whole says that it needs. Engines copy annotations of a shared definition to its runs; whoever may create
    pods is an engine, or could run anything without a queue."""
    names = f"[{', '.join(map(cel.text, NEEDS))}]"
    now, before = "object.metadata.?annotations[?k]", "oldObject.metadata.?annotations[?k]"
    rule = _rule(
        f"{names}.all(k, {now} == {before}) && {cel.kept('annotations', REQUESTS)}",
        f"annotations such as {NEEDS[0]} are not changed after creation: they say what the whole workflow holds. Delete the run, and create it anew",
    )
    return _validating("penstock-keep-needs", runs, [QUEUE, QUEUED], [rule], users, conditions=[_NO_ENGINE])


def _label_first(users: Sequence[str], runs: Sequence[Target]) -> list[Manifest]:
    """A queue's label that comes later holds nothing any more, so it must not look as if it did. Engines copy labels of shared definitions."""
    engine = f"request.userInfo.username.startsWith('system:serviceaccount:') && {_MAY_CREATE_PODS}"
    people = {"name": "not-an-engine", "expression": f"!({engine})"}
    queued = f"{cel.has(cel.label('oldObject', QUEUE))} || {cel.has(cel.label('oldObject', QUEUED))}"
    rule = _rule(
        f"{cel.implies(cel.has(cel.label('object', QUEUE)), queued)}",
        f"the label {QUEUE} counts when a run is created; later it would hold nothing. Delete the run, and create it with the label",
    )
    return _validating("penstock-label-first", runs, [QUEUE], [rule], users, conditions=[people])


def _went_through(runs: Sequence[Target]) -> list[Manifest]:
    """A run that names a queue and did not pass the webhook is refused: otherwise it would start without waiting, as if it had no label."""
    fix = "Is admission.penstock installed? penstock controller check says what is missing"
    found: list[Manifest] = []
    if _WORKFLOWS in runs:
        marked = cel.has(f"object.?spec.?podMetadata.?labels[?{cel.text(QUEUED)}]")
        rule = _rule(
            marked, f"the webhook of Penstock has not seen this Workflow, so it would not wait in its queue. {fix}"
        )
        name = "penstock-went-through-workflows"
        found += _validating(name, [_WORKFLOWS], [QUEUE], [rule], (), operations=("CREATE",))
    if _TASK_RUNS in runs:
        rule = _rule(
            f"{cel.has(cel.label('object', QUEUED))} || has(object.metadata.ownerReferences)",
            f"the webhook of Penstock has not seen this run, so it would not wait in its queue. {fix}",
        )
        both = [_PIPELINE_RUNS, _TASK_RUNS]
        found += _validating("penstock-went-through-runs", both, [QUEUE], [rule], (), operations=("CREATE",))
    return found


def _keep_workflows(users: Sequence[str]) -> list[Manifest]:
    """Argo takes the labels of pods from the spec, or from the copy of it that it keeps in the status."""
    key = f"?podMetadata.?labels[?{cel.text(QUEUED)}]"
    stored = "object.?status.?storedWorkflowTemplateSpec"
    queued = cel.has(f"oldObject.?spec.{key}")
    fix = "Delete the workflow, and create it without a queue"
    rules = [
        _rule(
            cel.implies(queued, f"object.?spec.{key} == oldObject.?spec.{key}"),
            f"spec.podMetadata.labels[{QUEUED}] holds the pods of a queued workflow, and stays. {fix}",
        ),
        _rule(
            cel.implies(f"{queued} && {stored}.hasValue()", f"{stored}.{key}.hasValue()"),
            f"status.storedWorkflowTemplateSpec.podMetadata.labels[{QUEUED}] holds the pods of a queued workflow, and stays. {fix}",
        ),
    ]
    return [*_validating("penstock-keep-workflows", [_WORKFLOWS], [QUEUE], rules, users), *_keep_hooks(users)]


def _keep_hooks(users: Sequence[str]) -> list[Manifest]:
    """Hooks, exit handlers and the pods that delete artifacts never wait; which nodes are hooks, Argo says in the status, which users may write. Whoever may
    create pods is Argo, or could run anything without a queue."""
    flag = "?nodeFlag.?hooked.orValue(false)"
    nodes = "object.?status.?nodes"
    stored = "?status.?storedWorkflowTemplateSpec.?artifactGC.?podSpecPatch"
    rules = [
        _rule(
            f"{nodes}.orValue({{}}).all(n, {nodes}[?n].{flag} == oldObject.?status.?nodes[?n].{flag})",
            "nodeFlag.hooked in the status of a queued workflow is written by Argo alone: hooks do not wait",
        ),
        _rule(
            cel.same("{}.?status.?compressedNodes"),
            "status.compressedNodes of a queued workflow is written by Argo alone: it says which nodes are hooks, and these do not wait",
        ),
        _rule(
            f"{cel.same('{}.?spec.?artifactGC.?podSpecPatch')} && (!{cel.has('object.' + stored)} || {cel.same('{}.' + stored)})",
            "artifactGC.podSpecPatch of a queued workflow stays: the pods that delete artifacts do not wait, so they run what Argo wrote",
        ),
    ]
    return _validating("penstock-keep-hooks", [_WORKFLOWS], [QUEUE], rules, users, conditions=[_NO_ENGINE])


def _keep_task_runs(users: Sequence[str]) -> list[Manifest]:
    """Cancelling is everyone's. A TaskRun that its user created as pending is let go by its user: its pod has a gate all the same."""
    status = "spec.?status.orValue('')"
    by_user = f"!has(object.metadata.ownerReferences) && {cel.annotation('oldObject', 'penstock/gate')}.orValue('').contains('\"held\":\"user\"')"
    rule = _rule(
        cel.implies(
            f"oldObject.{status} == 'TaskRunPending' && !({by_user})",
            f"object.{status} in ['TaskRunPending', 'TaskRunCancelled']",
        ),
        "TaskRunPending is cleared by the Penstock controller alone, when the stage is admitted. "
        "What it waits for: penstock why. To end it: tkn taskrun cancel, or delete the run",
    )
    return _validating("penstock-keep-taskruns", [_TASK_RUNS], [QUEUED], [rule], users)


_ANEW = "Delete the JobSet, and create it with another queue"


def _own_marks() -> list[Manifest]:
    """For objects that have our label in place of Kueue's."""
    return [
        _rule(
            f"{cel.same_label(QUEUE)} && {cel.kept('labels', OURS)}",
            f"the labels {QUEUE} and those that begin with {OURS} are not changed after creation. {_ANEW}",
        ),
        _rule(
            cel.kept("annotations", OURS),
            f"annotations that begin with {OURS}, such as {PARALLELISM}, are written by the Penstock controller alone",
        ),
        _priority("JobSet"),
    ]


def _keep_jobs(users: Sequence[str]) -> list[Manifest]:
    rules = [
        *_own_marks(),
        _rule(
            "object.spec.?parallelism.orValue(1) <= oldObject.spec.?parallelism.orValue(1)",
            "spec.parallelism of a queued Job is raised by the Penstock controller alone, when its stage is admitted. What it waits for: penstock why",
        ),
        _rule(
            f"{cel.label('object.spec.template', QUEUED)} == {cel.label('oldObject.spec.template', QUEUED)}",
            f"the label {QUEUED} of the pod template holds the pods of a queued Job, and stays. {_ANEW}",
        ),
    ]
    return _validating("penstock-keep-jobs", [_JOBS], [QUEUED], rules, users)


def _keep_job_sets(users: Sequence[str]) -> list[Manifest]:
    """A suspended JobSet may be edited in part. What is added must wait like the rest."""

    def labelled(one: str) -> str:
        return f"{cel.has(cel.label(f'{one}.template', QUEUED))} && {cel.has(cel.label(f'{one}.template.spec.template', QUEUED))}"

    def pods(one: str) -> str:
        return f"{one}.template.spec.?parallelism.orValue(1)"

    old, new = "oldObject.spec.?replicatedJobs.orValue([])", "object.spec.?replicatedJobs.orValue([])"
    rules = [
        *_own_marks(),
        _rule(
            f"{new}.all(r, {labelled('r')} || {old}.exists(o, o.name == r.name && !({labelled('o')})))",
            f"the labels {QUEUED} in the templates hold the pods of a queued JobSet, and stay. {_ANEW}",
        ),
        _rule(
            f"{new}.all(r, {old}.all(o, o.name != r.name || {pods('r')} <= {pods('o')}))",
            f"parallelism in a queued JobSet is 0 until its stage is admitted; the figure is in the annotation {PARALLELISM}. {_ANEW}",
        ),
    ]
    return _validating("penstock-keep-jobsets", [_JOB_SETS], [QUEUED], rules, users)


def _keep_workloads(users: Sequence[str]) -> list[Manifest]:
    """Kueue writes Workloads too, whatever its service account is called: whoever may write the status of ClusterQueues is Kueue. Others may switch a
    Workload off and on and change its priority, and controllers of admission checks write their part of the status."""
    kueue = (
        "authorizer.group('kueue.x-k8s.io').resource('clusterqueues').subresource('status').check('update').allowed()"
    )
    others = [{"name": "not-kueue", "expression": f"!{kueue}"}]
    who = "a Workload of a queued workflow is written by the Penstock controller and by Kueue alone"
    place = cel.has(cel.annotation("object", PLACE))
    rules = [
        _rule("request.operation != 'CREATE'", f"{who}. To wait in a queue, create a workflow with the label {QUEUE}"),
        _rule(
            "request.operation == 'CREATE' || "
            f"object.spec.?podSets == oldObject.spec.?podSets && object.spec.?queueName == oldObject.spec.?queueName && "
            f"{cel.kept('labels', OURS)} && {cel.kept('annotations', OURS)} && "
            f"{cel.annotation('object', GATED_BY)} == {cel.annotation('oldObject', GATED_BY)}",
            f"{who}: its pod sets, queue, labels and annotations stay. Delete the workflow, and create it anew",
        ),
        _rule(
            f"request.operation == 'CREATE' || !{place} || object.spec.?active == oldObject.spec.?active",
            f"{who}: it keeps the place of a stage that is not reached, and is switched on when it is",
        ),
    ]
    parts = ("admission", "conditions", "reclaimablePods")
    status = [
        _rule(
            " && ".join(f"object.?status.?{one} == oldObject.?status.?{one}" for one in parts),
            f"{who}: {', '.join(parts)} of its status stay. Delete the workflow to give its quota back",
        )
    ]
    writes = ("CREATE", "UPDATE")
    return [
        *_validating("penstock-keep-workloads", [_WORKLOADS], [WORKFLOW_UID], rules, users, writes, others),
        *_validating(
            "penstock-keep-workload-status", [_WORKLOAD_STATUS], [WORKFLOW_UID], status, users, conditions=others
        ),
    ]


# -- objects ------------------------------------------------------------------------------------------------------------


def _rule(expression: str, message: str) -> Manifest:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _applied(expression: str) -> Manifest:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def _patched(expression: str) -> Manifest:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def _selector(label: str) -> Manifest:
    return {"matchExpressions": [{"key": label, "operator": "Exists"}]}


def _rules(targets: Sequence[Target], operations: Sequence[str]) -> list[Manifest]:
    return [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": list(operations),
            "resources": [plural],
            "scope": "Namespaced",
        }
        for group, version, plural in targets
    ]


def _matching(label: str | None) -> Manifest:
    """All fields, as the API server fills them in: `check` compares what is there with this."""
    return {"objectSelector": _selector(label) if label else {}, "namespaceSelector": {}, "matchPolicy": "Equivalent"}


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> Manifest:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, "labels": dict(LABELS)}, "spec": dict(spec)}


def _mutating(
    name: str,
    targets: Sequence[Target],
    label: str,
    mutations: Sequence[Manifest],
    *,
    again: bool,
    conditions: Sequence[Manifest] = (),
) -> list[Manifest]:
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded" if again else "Never",
        "matchConstraints": {
            "resourceRules": _rules(targets, ["CREATE"]),
            **_matching(label),
        },
        "mutations": list(mutations),
    }
    if conditions:
        spec["matchConditions"] = list(conditions)
    binding = _object("MutatingAdmissionPolicyBinding", name, {"policyName": name})
    return [_object("MutatingAdmissionPolicy", name, spec), binding]


def _validating(
    name: str,
    targets: Sequence[Target],
    labels: Sequence[str],
    rules: Sequence[Manifest],
    users: Sequence[str],
    operations: Sequence[str] = ("UPDATE",),
    conditions: Sequence[Manifest] = (),
) -> list[Manifest]:
    """A policy, and a binding for each label by which it finds its objects: before or after the change, one of them has it."""
    exempt = f"!(request.userInfo.username in [{', '.join(map(cel.text, users))}])"
    not_ours = [{"name": "not-the-controller", "expression": exempt}] if users else []
    spec: Manifest = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": _rules(targets, operations),
            **_matching(labels[0] if len(labels) == 1 else None),
        },
        "validations": list(rules),
    }
    if not_ours or conditions:
        spec["matchConditions"] = [*not_ours, *conditions]
    bound = {"policyName": name, "validationActions": ["Deny"]}
    kind = "ValidatingAdmissionPolicyBinding"
    bindings = [_object(kind, name, bound)]
    if len(labels) > 1:
        bindings = [
            _object(kind, f"{name}-{number}", {**bound, "matchResources": _matching(label)})
            for number, label in enumerate(labels, 1)
        ]
    return [_object("ValidatingAdmissionPolicy", name, spec), *bindings]
