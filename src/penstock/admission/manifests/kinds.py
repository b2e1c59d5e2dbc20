"""The kinds of documents that a manifest may contain, and the schema of each. Data only; called by validate.

In v1beta1 some fields and values of the same objects have other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.admission.manifests.schema import (
    ANNOTATION_KEY,
    DURATION,
    KIND,
    LABEL,
    LABEL_KEY,
    LABEL_VALUE,
    REASON,
    SUBDOMAIN,
    AnyField,
    BooleanField,
    Field,
    IntegerField,
    ListField,
    MapField,
    NumberField,
    ObjectField,
    QuantityField,
    TextField,
    TimeField,
)

GROUP: Final = "kueue.x-k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")

IGNORED: Final = frozenset(("Topology", "MultiKueueConfig", "MultiKueueCluster", "ProvisioningRequestConfig"))
"""Kinds of Kueue that have nothing to do with quota."""

COUNT = IntegerField(0)
DOMAIN = TextField(SUBDOMAIN)
NAME = TextField(LABEL)
LABELS = MapField(TextField(LABEL_VALUE), LABEL_KEY)
ANNOTATIONS = MapField(TextField(), ANNOTATION_KEY)
FAIR = ObjectField({"weight": QuantityField()})
STOP = TextField(words=("None", "Hold", "HoldAndDrain"))


def _unread(names: str) -> frozenset[str]:
    return frozenset(names.split())


_OF_META = _unread(
    "generateName selfLink resourceVersion generation deletionTimestamp deletionGracePeriodSeconds ownerReferences "
    "finalizers managedFields"
)


def _meta(name: Field) -> ObjectField:
    return ObjectField(
        {
            "name": name,
            "namespace": NAME,
            "labels": LABELS,
            "annotations": ANNOTATIONS,
            "uid": TextField(),
            "creationTimestamp": TimeField(),
        },
        ("name",),
        _OF_META,
    )


def _kind(fields: Mapping[str, Field], *needed: str, name: Field = DOMAIN) -> ObjectField:
    return ObjectField(
        {"apiVersion": TextField(), "kind": TextField(), "metadata": _meta(name), **fields},
        ("metadata", *needed),
    )


# -- queues -----------------------------------------------------------------------------------------------------------

_QUOTA = ObjectField(
    {
        "name": TextField(),
        "nominalQuota": QuantityField(),
        "borrowingLimit": QuantityField(),
        "lendingLimit": QuantityField(),
    },
    ("name", "nominalQuota"),
)
_FLAVOR = ObjectField({"name": DOMAIN, "resources": ListField(_QUOTA, 64, 1, ("name",))}, ("name", "resources"))
GROUPS = ListField(
    ObjectField(
        {"coveredResources": ListField(TextField(), 64, 1), "flavors": ListField(_FLAVOR, 64, 1, ("name",))},
        ("coveredResources", "flavors"),
    ),
    16,
)
_SELECTOR = ObjectField(
    {
        "matchLabels": LABELS,
        "matchExpressions": ListField(
            ObjectField(
                {
                    "key": TextField(LABEL_KEY),
                    "operator": TextField(words=("In", "NotIn", "Exists", "DoesNotExist")),
                    "values": ListField(TextField(LABEL_VALUE)),
                },
                ("key", "operator"),
            )
        ),
    }
)
_PREEMPTION = ObjectField(
    {
        "withinClusterQueue": TextField(words=("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
        "reclaimWithinCohort": TextField(words=("Never", "LowerPriority", "Any")),
        "borrowWithinCohort": ObjectField(
            {"policy": TextField(words=("Never", "LowerPriority")), "maxPriorityThreshold": IntegerField()}
        ),
    }
)
_CONCURRENT = ObjectField(
    {
        "migration": ObjectField(
            {
                "mode": TextField(words=("TryPreferredFlavors", "RetainFirstAdmission")),
                "constraints": ObjectField({"lastAcceptableFlavorName": DOMAIN}),
            },
            ("mode",),
        )
    },
    ("migration",),
)


def _fungibility(*old: str) -> ObjectField:
    search = ("MayStopSearch", "TryNextFlavor")
    return ObjectField(
        {
            "whenCanBorrow": TextField(words=search + old[:1]),
            "whenCanPreempt": TextField(words=search + old[1:]),
            "preference": TextField(words=("BorrowingOverPreemption", "PreemptionOverBorrowing")),
        }
    )


def _checks(most: int | None, least: int) -> ListField:
    rule = ObjectField(
        {"name": TextField(most=316, least=least), "onFlavors": ListField(DOMAIN, most, 0, ("*",))}, ("name",)
    )
    return ListField(rule, most, least, ("name",))


_QUEUE: Mapping[str, Field] = {
    "resourceGroups": GROUPS,
    "queueingStrategy": TextField(words=("StrictFIFO", "BestEffortFIFO")),
    "namespaceSelector": _SELECTOR,
    "preemption": _PREEMPTION,
    "stopPolicy": STOP,
    "fairSharing": FAIR,
    "admissionScope": ObjectField(
        {"admissionMode": TextField(words=("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"))},
        ("admissionMode",),
    ),
}
CLUSTER_QUEUE = _kind(
    {
        "spec": ObjectField(
            {
                **_QUEUE,
                "cohortName": DOMAIN,
                "flavorFungibility": _fungibility(),
                "admissionChecksStrategy": ObjectField({"admissionChecks": _checks(64, 1)}, ("admissionChecks",)),
                "concurrentAdmissionPolicy": _CONCURRENT,
            }
        ),
        "status": AnyField(),
    }
)
OLD_CLUSTER_QUEUE = _kind(
    {
        "spec": ObjectField(
            {
                **_QUEUE,
                "cohort": DOMAIN,
                "flavorFungibility": _fungibility("Borrow", "Preempt"),
                "admissionChecks": ListField(TextField(most=316)),
                "admissionChecksStrategy": ObjectField({"admissionChecks": _checks(None, 0)}),
            }
        ),
        "status": AnyField(),
    }
)
_COHORT = ObjectField({"parentName": DOMAIN, "resourceGroups": GROUPS, "fairSharing": FAIR})
COHORT = _kind({"spec": _COHORT, "status": AnyField()})
_LOCAL_QUEUE = ObjectField({"clusterQueue": DOMAIN, "stopPolicy": STOP, "fairSharing": FAIR})
LOCAL_QUEUE = _kind({"spec": _LOCAL_QUEUE, "status": AnyField()})

_TAINT = ObjectField(
    {"key": TextField(LABEL_KEY), "value": TextField(LABEL_VALUE), "effect": TextField(words=EFFECTS)},
    ("key", "effect"),
    _unread("timeAdded"),
)
TOLERATION = ObjectField(
    {
        "key": TextField(),
        "operator": TextField(),
        "value": TextField(),
        "effect": TextField(),
        "tolerationSeconds": IntegerField(-(2**63), 2**63 - 1),
    }
)
FLAVOR = _kind(
    {
        "spec": ObjectField(
            {
                "nodeLabels": MapField(TextField(LABEL_VALUE), LABEL_KEY, 8),
                "nodeTaints": ListField(_TAINT, 8),
                "tolerations": ListField(TOLERATION, 8),
                "topologyName": DOMAIN,
            }
        )
    }
)


def _priority_class(most: int | None) -> ObjectField:
    return _kind({"value": IntegerField(), "description": TextField(most=most)}, "value")


_PARAMETERS = ObjectField(
    {"apiGroup": DOMAIN, "kind": TextField(KIND), "name": TextField(LABEL)}, ("apiGroup", "kind", "name")
)


# -- Workloads --------------------------------------------------------------------------------------------------------

_AMOUNTS = MapField(QuantityField())
_RESOURCES = ObjectField({"requests": _AMOUNTS, "limits": _AMOUNTS}, (), _unread("claims"))
_CONTAINER = ObjectField(
    {"name": TextField(), "resources": _RESOURCES, "restartPolicy": TextField()},
    ("name",),
    _unread(
        "args command env envFrom image imagePullPolicy lifecycle livenessProbe ports readinessProbe resizePolicy "
        "restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath "
        "terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
    ),
)
_NODE_LINE = ObjectField(
    {
        "key": TextField(),
        "operator": TextField(words=("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
        "values": ListField(TextField()),
    },
    ("key", "operator"),
)
_NODE_TERMS = ObjectField(
    {
        "nodeSelectorTerms": ListField(
            ObjectField({"matchExpressions": ListField(_NODE_LINE)}, (), _unread("matchFields"))
        )
    },
    ("nodeSelectorTerms",),
)
_AFFINITY = ObjectField(
    {
        "nodeAffinity": ObjectField(
            {"requiredDuringSchedulingIgnoredDuringExecution": _NODE_TERMS},
            (),
            _unread("preferredDuringSchedulingIgnoredDuringExecution"),
        )
    },
    (),
    _unread("podAffinity podAntiAffinity"),
)
POD = ObjectField(
    {
        "containers": ListField(_CONTAINER, unique=("name",)),
        "initContainers": ListField(_CONTAINER, unique=("name",)),
        "resources": _RESOURCES,
        "overhead": _AMOUNTS,
        "nodeSelector": MapField(TextField()),
        "affinity": _AFFINITY,
        "tolerations": ListField(TOLERATION),
        "runtimeClassName": TextField(),
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
_TEMPLATE = ObjectField(
    {
        "metadata": ObjectField(
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
_CONDITION = ObjectField(
    {
        "type": TextField(LABEL_KEY, most=316),
        "status": TextField(words=("True", "False", "Unknown")),
        "reason": TextField(REASON, least=1),
        "message": TextField(most=32768),
        "lastTransitionTime": TimeField(),
        "observedGeneration": IntegerField(0, 2**63 - 1),
    },
    ("type", "status", "reason", "message", "lastTransitionTime"),
)


def _conditions(old: bool) -> ListField:
    return ListField(_CONDITION, None if old else 16, 0, ("type",))


_UPDATE = ObjectField(
    {
        "name": NAME,
        "labels": LABELS,
        "annotations": ANNOTATIONS,
        "nodeSelector": LABELS,
        "tolerations": ListField(TOLERATION, 8),
    },
    ("name",),
)
_UNREAD_STATUS = _unread("resourceRequests schedulingStats nominatedClusterNames clusterName unhealthyNodes")


def _status(old: bool) -> ObjectField:
    assignment = ObjectField(
        {"name": NAME, "count": COUNT, "flavors": MapField(DOMAIN), "resourceUsage": _AMOUNTS},
        ("name",) if old else (),
        _unread("topologyAssignment delayedTopologyRequest"),
    )
    check = ObjectField(
        {
            "name": TextField(most=316, least=0 if old else 1),
            "state": TextField(words=("Pending", "Ready", "Retry", "Rejected")),
            "message": TextField(most=32768),
            "lastTransitionTime": TimeField(),
            "podSetUpdates": ListField(_UPDATE, 18),
            "requeueAfterSeconds": COUNT,
            "retryCount": COUNT,
        },
        ("name", "state", "message", "lastTransitionTime"),
    )
    fields: Mapping[str, Field] = {
        "conditions": _conditions(old),
        "admission": ObjectField(
            {"clusterQueue": DOMAIN, "podSetAssignments": ListField(assignment, 18, 0, ("name",))},
            ("clusterQueue", "podSetAssignments") if old else (),
        ),
        "reclaimablePods": ListField(ObjectField({"name": NAME, "count": COUNT}, ("name", "count")), 18, 0, ("name",)),
        "admissionChecks": ListField(check, 8, 0, ("name",)),
        "requeueState": ObjectField({"count": COUNT, "requeueAt": TimeField()}),
        f"accumulatedPast{'Exexcution' if old else 'Execution'}TimeSeconds": IntegerField(),
    }
    return ObjectField(fields, (), _UNREAD_STATUS if old else _UNREAD_STATUS | {"preemptionGates"})


_WORKLOAD: Mapping[str, Field] = {
    "queueName": DOMAIN,
    "priority": IntegerField(),
    "active": BooleanField(),
    "maximumExecutionTimeSeconds": IntegerField(1),
}


def _podsets(old: bool) -> ListField:
    topology = ObjectField({"podSetGroupName": TextField(most=256)}, (), _TOPOLOGY if old else _NEWER_TOPOLOGY)
    fields: Mapping[str, Field] = {
        "name": NAME,
        "template": _TEMPLATE,
        "count": COUNT,
        "minCount": IntegerField(1),
        "topologyRequest": topology,
    }
    return ListField(ObjectField(fields, ("template", "count") if old else ("template",)), 18, 1, ("name",))


WORKLOAD = _kind(
    {
        "spec": ObjectField(
            {
                **_WORKLOAD,
                "podSets": _podsets(False),
                "priorityClassRef": ObjectField(
                    {
                        "group": TextField(words=(GROUP, "scheduling.k8s.io")),
                        "kind": TextField(words=("WorkloadPriorityClass", "PriorityClass")),
                        "name": TextField(SUBDOMAIN, least=1),
                    },
                    ("group", "kind", "name"),
                ),
                "preemptionGates": ListField(
                    ObjectField({"name": TextField(most=63, least=1)}, ("name",)), 8, 0, ("name",)
                ),
            }
        ),
        "status": _status(False),
    }
)
OLD_WORKLOAD = _kind(
    {
        "spec": ObjectField(
            {
                **_WORKLOAD,
                "podSets": _podsets(True),
                "priorityClassName": DOMAIN,
                "priorityClassSource": TextField(
                    words=("kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", "")
                ),
            },
            ("podSets",),
        ),
        "status": _status(True),
    }
)


# -- defaults for Workloads -------------------------------------------------------------------------------------------

_ANY_AMOUNTS = MapField(QuantityField(fractions=True))
_LIMITS = ObjectField(
    {
        "type": TextField(),
        "max": _ANY_AMOUNTS,
        "min": _ANY_AMOUNTS,
        "default": _ANY_AMOUNTS,
        "defaultRequest": _ANY_AMOUNTS,
        "maxLimitRequestRatio": _ANY_AMOUNTS,
    },
    ("type",),
)

# -- Kueue's Configuration --------------------------------------------------------------------------------------------

CONFIGURATION: Final = "Configuration"
_TIME = TextField(DURATION)
_SETTINGS = ObjectField(
    {
        "apiVersion": TextField(),
        "kind": TextField(),
        "fairSharing": ObjectField(
            {
                "enable": BooleanField(),
                "preemptionStrategies": ListField(
                    TextField(words=("LessThanOrEqualToFinalShare", "LessThanInitialShare")), None, 0, ("*",)
                ),
            }
        ),
        "admissionFairSharing": ObjectField(
            {"usageHalfLifeTime": _TIME, "usageSamplingInterval": _TIME, "resourceWeights": MapField(NumberField())}
        ),
        "waitForPodsReady": ObjectField(
            {
                "enable": BooleanField(),
                "timeout": _TIME,
                "recoveryTimeout": _TIME,
                "blockAdmission": BooleanField(),
                "requeuingStrategy": ObjectField(
                    {
                        "timestamp": TextField(words=("Eviction", "Creation")),
                        "backoffLimitCount": COUNT,
                        "backoffBaseSeconds": COUNT,
                        "backoffMaxSeconds": COUNT,
                    }
                ),
            }
        ),
        "resources": ObjectField(
            {"quotaCheckStrategy": TextField()},
            (),
            _unread("excludeResourcePrefixes transformations deviceClassMappings"),
        ),
        "featureGates": MapField(BooleanField()),
    },
    (),
    _unread(
        "metadata namespace webhook leaderElection metrics health pprofBindAddress controller tls clientConnection "
        "manageJobsWithoutQueueName managedJobsNamespaceSelector internalCertManagement integrations multiKueue "
        "objectRetentionPolicies visibilityServer queueVisibility"
    ),
)


# -- all of them ------------------------------------------------------------------------------------------------------

SCHEMAS: Mapping[tuple[str, str], ObjectField] = {
    (f"{GROUP}/{version}", kind): schema
    for version, old in zip(VERSIONS, (False, True), strict=True)
    for kind, schema in {
        "ClusterQueue": OLD_CLUSTER_QUEUE if old else CLUSTER_QUEUE,
        "Cohort": COHORT,
        "LocalQueue": LOCAL_QUEUE,
        "ResourceFlavor": FLAVOR,
        "WorkloadPriorityClass": _priority_class(None if old else 2048),
        "AdmissionCheck": _kind(
            {
                "spec": ObjectField(
                    {
                        "controllerName": TextField(most=None if old else 253, least=0 if old else 1),
                        "parameters": _PARAMETERS,
                    },
                    ("controllerName",),
                    _unread("retryDelayMinutes") if old else frozenset(),
                ),
                "status": ObjectField({"conditions": _conditions(old)}),
            }
        ),
        "Workload": OLD_WORKLOAD if old else WORKLOAD,
    }.items()
} | {
    **{(f"config.{GROUP}/{version}", CONFIGURATION): _SETTINGS for version in VERSIONS},
    ("v1", "Namespace"): _kind({"spec": AnyField(), "status": AnyField()}, name=NAME),
    ("v1", "LimitRange"): _kind({"spec": ObjectField({"limits": ListField(_LIMITS)}, ("limits",))}),
    ("node.k8s.io/v1", "RuntimeClass"): _kind(
        {"handler": TextField(), "overhead": ObjectField({"podFixed": _ANY_AMOUNTS}), "scheduling": AnyField()}
    ),
}
"""By apiVersion and kind."""

KINDS: Final = tuple(sorted({kind for version, kind in SCHEMAS if version.startswith(GROUP)}))
CLUSTER_WIDE: Final = frozenset(KINDS) - {"LocalQueue", "Workload"} | {"Namespace", "RuntimeClass"}
