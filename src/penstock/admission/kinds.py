"""The kinds of documents a manifest may hold, and the shape of each. Data only; called by validate.

v1beta1 is the older spelling of the same objects: some fields have other names, some values too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.admission.shapes import (
    ANNOTATION_KEY,
    DURATION,
    KIND,
    LABEL,
    LABEL_KEY,
    LABEL_VALUE,
    REASON,
    SUBDOMAIN,
    Amount,
    Anything,
    Fields,
    Flag,
    Items,
    Moment,
    Real,
    Shape,
    Table,
    Text,
    Whole,
)

GROUP: Final = "kueue.x-k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")

PASSED_OVER: Final = frozenset(("Topology", "MultiKueueConfig", "MultiKueueCluster", "ProvisioningRequestConfig"))
"""Kinds of Kueue's that say nothing about quota."""

COUNT = Whole(0)
DOMAIN = Text(SUBDOMAIN)
NAME = Text(LABEL)
LABELS = Table(Text(LABEL_VALUE), LABEL_KEY)
ANNOTATIONS = Table(Text(), ANNOTATION_KEY)
FAIR = Fields({"weight": Amount()})
STOP = Text(words=("None", "Hold", "HoldAndDrain"))


def _unread(names: str) -> frozenset[str]:
    return frozenset(names.split())


_OF_META = _unread(
    "generateName selfLink resourceVersion generation deletionTimestamp deletionGracePeriodSeconds ownerReferences "
    "finalizers managedFields"
)


def _meta(name: Shape) -> Fields:
    return Fields(
        {
            "name": name,
            "namespace": NAME,
            "labels": LABELS,
            "annotations": ANNOTATIONS,
            "uid": Text(),
            "creationTimestamp": Moment(),
        },
        ("name",),
        _OF_META,
    )


def _kind(fields: Mapping[str, Shape], *needed: str, name: Shape = DOMAIN) -> Fields:
    return Fields(
        {"apiVersion": Text(), "kind": Text(), "metadata": _meta(name), **fields},
        ("metadata", *needed),
    )


# -- queues -----------------------------------------------------------------------------------------------------------

_QUOTA = Fields(
    {"name": Text(), "nominalQuota": Amount(), "borrowingLimit": Amount(), "lendingLimit": Amount()},
    ("name", "nominalQuota"),
)
_FLAVOR = Fields({"name": DOMAIN, "resources": Items(_QUOTA, 64, 1, ("name",))}, ("name", "resources"))
GROUPS = Items(
    Fields(
        {"coveredResources": Items(Text(), 64, 1), "flavors": Items(_FLAVOR, 64, 1, ("name",))},
        ("coveredResources", "flavors"),
    ),
    16,
)
_SELECTOR = Fields(
    {
        "matchLabels": LABELS,
        "matchExpressions": Items(
            Fields(
                {
                    "key": Text(LABEL_KEY),
                    "operator": Text(words=("In", "NotIn", "Exists", "DoesNotExist")),
                    "values": Items(Text(LABEL_VALUE)),
                },
                ("key", "operator"),
            )
        ),
    }
)
_PREEMPTION = Fields(
    {
        "withinClusterQueue": Text(words=("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
        "reclaimWithinCohort": Text(words=("Never", "LowerPriority", "Any")),
        "borrowWithinCohort": Fields(
            {"policy": Text(words=("Never", "LowerPriority")), "maxPriorityThreshold": Whole()}
        ),
    }
)
_CONCURRENT = Fields(
    {
        "migration": Fields(
            {
                "mode": Text(words=("TryPreferredFlavors", "RetainFirstAdmission")),
                "constraints": Fields({"lastAcceptableFlavorName": DOMAIN}),
            },
            ("mode",),
        )
    },
    ("migration",),
)


def _fungibility(*old: str) -> Fields:
    search = ("MayStopSearch", "TryNextFlavor")
    return Fields(
        {
            "whenCanBorrow": Text(words=search + old[:1]),
            "whenCanPreempt": Text(words=search + old[1:]),
            "preference": Text(words=("BorrowingOverPreemption", "PreemptionOverBorrowing")),
        }
    )


def _checks(most: int | None, least: int) -> Items:
    rule = Fields({"name": Text(most=316, least=least), "onFlavors": Items(DOMAIN, most, 0, ("*",))}, ("name",))
    return Items(rule, most, least, ("name",))


_QUEUE: Mapping[str, Shape] = {
    "resourceGroups": GROUPS,
    "queueingStrategy": Text(words=("StrictFIFO", "BestEffortFIFO")),
    "namespaceSelector": _SELECTOR,
    "preemption": _PREEMPTION,
    "stopPolicy": STOP,
    "fairSharing": FAIR,
    "admissionScope": Fields(
        {"admissionMode": Text(words=("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"))}, ("admissionMode",)
    ),
}
CLUSTER_QUEUE = _kind(
    {
        "spec": Fields(
            {
                **_QUEUE,
                "cohortName": DOMAIN,
                "flavorFungibility": _fungibility(),
                "admissionChecksStrategy": Fields({"admissionChecks": _checks(64, 1)}, ("admissionChecks",)),
                "concurrentAdmissionPolicy": _CONCURRENT,
            }
        ),
        "status": Anything(),
    }
)
OLD_CLUSTER_QUEUE = _kind(
    {
        "spec": Fields(
            {
                **_QUEUE,
                "cohort": DOMAIN,
                "flavorFungibility": _fungibility("Borrow", "Preempt"),
                "admissionChecks": Items(Text(most=316)),
                "admissionChecksStrategy": Fields({"admissionChecks": _checks(None, 0)}),
            }
        ),
        "status": Anything(),
    }
)
_COHORT = Fields({"parentName": DOMAIN, "resourceGroups": GROUPS, "fairSharing": FAIR})
COHORT = _kind({"spec": _COHORT, "status": Anything()})
_LOCAL_QUEUE = Fields({"clusterQueue": DOMAIN, "stopPolicy": STOP, "fairSharing": FAIR})
LOCAL_QUEUE = _kind({"spec": _LOCAL_QUEUE, "status": Anything()})

_TAINT = Fields(
    {"key": Text(LABEL_KEY), "value": Text(LABEL_VALUE), "effect": Text(words=EFFECTS)},
    ("key", "effect"),
    _unread("timeAdded"),
)
TOLERATION = Fields(
    {
        "key": Text(),
        "operator": Text(),
        "value": Text(),
        "effect": Text(),
        "tolerationSeconds": Whole(-(2**63), 2**63 - 1),
    }
)
FLAVOR = _kind(
    {
        "spec": Fields(
            {
                "nodeLabels": Table(Text(LABEL_VALUE), LABEL_KEY, 8),
                "nodeTaints": Items(_TAINT, 8),
                "tolerations": Items(TOLERATION, 8),
                "topologyName": DOMAIN,
            }
        )
    }
)


def _priority_class(most: int | None) -> Fields:
    return _kind({"value": Whole(), "description": Text(most=most)}, "value")


_PARAMETERS = Fields({"apiGroup": DOMAIN, "kind": Text(KIND), "name": Text(LABEL)}, ("apiGroup", "kind", "name"))


# -- Workloads --------------------------------------------------------------------------------------------------------

_AMOUNTS = Table(Amount())
_RESOURCES = Fields({"requests": _AMOUNTS, "limits": _AMOUNTS}, (), _unread("claims"))
_CONTAINER = Fields(
    {"name": Text(), "resources": _RESOURCES, "restartPolicy": Text()},
    ("name",),
    _unread(
        "args command env envFrom image imagePullPolicy lifecycle livenessProbe ports readinessProbe resizePolicy "
        "restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath "
        "terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
    ),
)
_NODE_LINE = Fields(
    {
        "key": Text(),
        "operator": Text(words=("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
        "values": Items(Text()),
    },
    ("key", "operator"),
)
_NODE_TERMS = Fields(
    {"nodeSelectorTerms": Items(Fields({"matchExpressions": Items(_NODE_LINE)}, (), _unread("matchFields")))},
    ("nodeSelectorTerms",),
)
_AFFINITY = Fields(
    {
        "nodeAffinity": Fields(
            {"requiredDuringSchedulingIgnoredDuringExecution": _NODE_TERMS},
            (),
            _unread("preferredDuringSchedulingIgnoredDuringExecution"),
        )
    },
    (),
    _unread("podAffinity podAntiAffinity"),
)
POD = Fields(
    {
        "containers": Items(_CONTAINER, unique=("name",)),
        "initContainers": Items(_CONTAINER, unique=("name",)),
        "resources": _RESOURCES,
        "overhead": _AMOUNTS,
        "nodeSelector": Table(Text()),
        "affinity": _AFFINITY,
        "tolerations": Items(TOLERATION),
        "runtimeClassName": Text(),
    },
    ("containers",),
    _unread(
        "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks ephemeralContainers "
        "hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets nodeName os "
        "preemptionPolicy priority priorityClassName readinessGates resourceClaims restartPolicy schedulerName "
        "schedulingGates schedulingGroup securityContext serviceAccount serviceAccountName setHostnameAsFQDN "
        "shareProcessNamespace subdomain terminationGracePeriodSeconds topologySpreadConstraints volumes"
    ),
)
_TEMPLATE = Fields(
    {
        "metadata": Fields(
            {"labels": LABELS, "annotations": ANNOTATIONS},
            (),
            _OF_META | _unread("name namespace uid creationTimestamp"),
        ),
        "spec": POD,
    }
)
_TOPOLOGY = _unread(
    "podIndexLabel podSetSliceRequiredTopology podSetSliceSize preferred required subGroupCount subGroupIndexLabel "
    "unconstrained"
)
_NEWER_TOPOLOGY = _TOPOLOGY | {"podsetSliceRequiredTopologyConstraints"}
_CONDITION = Fields(
    {
        "type": Text(LABEL_KEY, most=316),
        "status": Text(words=("True", "False", "Unknown")),
        "reason": Text(REASON, least=1),
        "message": Text(most=32768),
        "lastTransitionTime": Moment(),
        "observedGeneration": Whole(0, 2**63 - 1),
    },
    ("type", "status", "reason", "message", "lastTransitionTime"),
)


def _conditions(old: bool) -> Items:
    return Items(_CONDITION, None if old else 16, 0, ("type",))


_UPDATE = Fields(
    {
        "name": NAME,
        "labels": LABELS,
        "annotations": ANNOTATIONS,
        "nodeSelector": LABELS,
        "tolerations": Items(TOLERATION, 8),
    },
    ("name",),
)
_UNREAD_STATUS = _unread("resourceRequests schedulingStats nominatedClusterNames clusterName unhealthyNodes")


def _status(old: bool) -> Fields:
    assignment = Fields(
        {"name": NAME, "count": COUNT, "flavors": Table(DOMAIN), "resourceUsage": _AMOUNTS},
        ("name",) if old else (),
        _unread("topologyAssignment delayedTopologyRequest"),
    )
    check = Fields(
        {
            "name": Text(most=316, least=0 if old else 1),
            "state": Text(words=("Pending", "Ready", "Retry", "Rejected")),
            "message": Text(most=32768),
            "lastTransitionTime": Moment(),
            "podSetUpdates": Items(_UPDATE, 18),
            "requeueAfterSeconds": COUNT,
            "retryCount": COUNT,
        },
        ("name", "state", "message", "lastTransitionTime"),
    )
    fields: Mapping[str, Shape] = {
        "conditions": _conditions(old),
        "admission": Fields(
            {"clusterQueue": DOMAIN, "podSetAssignments": Items(assignment, 18, 0, ("name",))},
            ("clusterQueue", "podSetAssignments") if old else (),
        ),
        "reclaimablePods": Items(Fields({"name": NAME, "count": COUNT}, ("name", "count")), 18, 0, ("name",)),
        "admissionChecks": Items(check, 8, 0, ("name",)),
        "requeueState": Fields({"count": COUNT, "requeueAt": Moment()}),
        f"accumulatedPast{'Exexcution' if old else 'Execution'}TimeSeconds": Whole(),
    }
    return Fields(fields, (), _UNREAD_STATUS if old else _UNREAD_STATUS | {"preemptionGates"})


_WORKLOAD: Mapping[str, Shape] = {
    "queueName": DOMAIN,
    "priority": Whole(),
    "active": Flag(),
    "maximumExecutionTimeSeconds": Whole(1),
}


def _podsets(old: bool) -> Items:
    topology = Fields({"podSetGroupName": Text(most=256)}, (), _TOPOLOGY if old else _NEWER_TOPOLOGY)
    fields: Mapping[str, Shape] = {
        "name": NAME,
        "template": _TEMPLATE,
        "count": COUNT,
        "minCount": Whole(1),
        "topologyRequest": topology,
    }
    return Items(Fields(fields, ("template", "count") if old else ("template",)), 18, 1, ("name",))


WORKLOAD = _kind(
    {
        "spec": Fields(
            {
                **_WORKLOAD,
                "podSets": _podsets(False),
                "priorityClassRef": Fields(
                    {
                        "group": Text(words=(GROUP, "scheduling.k8s.io")),
                        "kind": Text(words=("WorkloadPriorityClass", "PriorityClass")),
                        "name": Text(SUBDOMAIN, least=1),
                    },
                    ("group", "kind", "name"),
                ),
                "preemptionGates": Items(Fields({"name": Text(most=63, least=1)}, ("name",)), 8, 0, ("name",)),
            }
        ),
        "status": _status(False),
    }
)
OLD_WORKLOAD = _kind(
    {
        "spec": Fields(
            {
                **_WORKLOAD,
                "podSets": _podsets(True),
                "priorityClassName": DOMAIN,
                "priorityClassSource": Text(
                    words=("kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", "")
                ),
            },
            ("podSets",),
        ),
        "status": _status(True),
    }
)


# -- what acts on Workloads -------------------------------------------------------------------------------------------

_ANY_AMOUNTS = Table(Amount(fractions=True))
_LIMITS = Fields(
    {
        "type": Text(),
        "max": _ANY_AMOUNTS,
        "min": _ANY_AMOUNTS,
        "default": _ANY_AMOUNTS,
        "defaultRequest": _ANY_AMOUNTS,
        "maxLimitRequestRatio": _ANY_AMOUNTS,
    },
    ("type",),
)

# -- Kueue's own settings ---------------------------------------------------------------------------------------------

CONFIGURATION: Final = "Configuration"
_TIME = Text(DURATION)
_SETTINGS = Fields(
    {
        "apiVersion": Text(),
        "kind": Text(),
        "fairSharing": Fields(
            {
                "enable": Flag(),
                "preemptionStrategies": Items(
                    Text(words=("LessThanOrEqualToFinalShare", "LessThanInitialShare")), None, 0, ("*",)
                ),
            }
        ),
        "admissionFairSharing": Fields(
            {"usageHalfLifeTime": _TIME, "usageSamplingInterval": _TIME, "resourceWeights": Table(Real())}
        ),
        "waitForPodsReady": Fields(
            {
                "enable": Flag(),
                "timeout": _TIME,
                "recoveryTimeout": _TIME,
                "blockAdmission": Flag(),
                "requeuingStrategy": Fields(
                    {
                        "timestamp": Text(words=("Eviction", "Creation")),
                        "backoffLimitCount": COUNT,
                        "backoffBaseSeconds": COUNT,
                        "backoffMaxSeconds": COUNT,
                    }
                ),
            }
        ),
        "resources": Fields(
            {"quotaCheckStrategy": Text()}, (), _unread("excludeResourcePrefixes transformations deviceClassMappings")
        ),
        "featureGates": Table(Flag()),
    },
    (),
    _unread(
        "metadata namespace webhook leaderElection metrics health pprofBindAddress controller tls clientConnection "
        "manageJobsWithoutQueueName managedJobsNamespaceSelector internalCertManagement integrations multiKueue "
        "objectRetentionPolicies visibilityServer queueVisibility"
    ),
)


# -- all of them ------------------------------------------------------------------------------------------------------

SHAPES: Mapping[tuple[str, str], Fields] = {
    (f"{GROUP}/{version}", kind): shape
    for version, old in zip(VERSIONS, (False, True), strict=True)
    for kind, shape in {
        "ClusterQueue": OLD_CLUSTER_QUEUE if old else CLUSTER_QUEUE,
        "Cohort": COHORT,
        "LocalQueue": LOCAL_QUEUE,
        "ResourceFlavor": FLAVOR,
        "WorkloadPriorityClass": _priority_class(None if old else 2048),
        "AdmissionCheck": _kind(
            {
                "spec": Fields(
                    {
                        "controllerName": Text(most=None if old else 253, least=0 if old else 1),
                        "parameters": _PARAMETERS,
                    },
                    ("controllerName",),
                    _unread("retryDelayMinutes") if old else frozenset(),
                ),
                "status": Fields({"conditions": _conditions(old)}),
            }
        ),
        "Workload": OLD_WORKLOAD if old else WORKLOAD,
    }.items()
} | {
    **{(f"config.{GROUP}/{version}", CONFIGURATION): _SETTINGS for version in VERSIONS},
    ("v1", "Namespace"): _kind({"spec": Anything(), "status": Anything()}, name=NAME),
    ("v1", "LimitRange"): _kind({"spec": Fields({"limits": Items(_LIMITS)}, ("limits",))}),
    ("node.k8s.io/v1", "RuntimeClass"): _kind(
        {"handler": Text(), "overhead": Fields({"podFixed": _ANY_AMOUNTS}), "scheduling": Anything()}
    ),
}
"""By apiVersion and kind."""

KINDS: Final = tuple(sorted({kind for version, kind in SHAPES if version.startswith(GROUP)}))
CLUSTER_WIDE: Final = frozenset(KINDS) - {"LocalQueue", "Workload"} | {"Namespace", "RuntimeClass"}
