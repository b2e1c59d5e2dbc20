"""Which fields a state may have, by its kind and query language. Read by states."""

from __future__ import annotations

from typing import Final

KINDS: Final = ("Task", "Pass", "Choice", "Wait", "Succeed", "Fail", "Parallel", "Map")
LANGUAGES: Final = ("JSONPath", "JSONata")
MACHINE: Final = frozenset(
    {"Comment", "StartAt", "States", "Version", "TimeoutSeconds", "QueryLanguage", "ProcessorConfig"}
)
_EVERY: Final = {"Type", "Comment", "QueryLanguage"}
_FLOW: Final = {"Next", "End"}
_WORK: Final = {"Retry", "Catch"}
_LIMITS: Final = {"TimeoutSeconds", "HeartbeatSeconds"}
_MAP: Final = {
    "ItemProcessor",
    "Iterator",
    "ItemReader",
    "ItemSelector",
    "ItemBatcher",
    "ResultWriter",
    "Label",
    "MaxConcurrency",
    "ToleratedFailureCount",
    "ToleratedFailurePercentage",
}
_IN_OUT: Final = {"InputPath", "OutputPath"}
_RESULT: Final = {"ResultSelector", "ResultPath"}

JSONPATH: Final[dict[str, frozenset[str]]] = {
    "Task": frozenset(
        _EVERY
        | _FLOW
        | _IN_OUT
        | _RESULT
        | _WORK
        | _LIMITS
        | {"Resource", "Parameters", "TimeoutSecondsPath", "HeartbeatSecondsPath", "Credentials", "Assign"}
    ),
    "Pass": frozenset(_EVERY | _FLOW | _IN_OUT | {"Result", "ResultPath", "Parameters", "Assign"}),
    "Choice": frozenset(_EVERY | _IN_OUT | {"Choices", "Default", "Assign"}),
    "Wait": frozenset(_EVERY | _FLOW | _IN_OUT | {"Seconds", "SecondsPath", "Timestamp", "TimestampPath", "Assign"}),
    "Succeed": frozenset(_EVERY | _IN_OUT),
    "Fail": frozenset(_EVERY | {"Error", "Cause", "ErrorPath", "CausePath"}),
    "Parallel": frozenset(_EVERY | _FLOW | _IN_OUT | _RESULT | _WORK | {"Branches", "Parameters", "Assign"}),
    "Map": frozenset(
        _EVERY
        | _FLOW
        | _IN_OUT
        | _RESULT
        | _WORK
        | _MAP
        | {"ItemsPath", "Parameters", "Assign", "MaxConcurrencyPath"}
        | {"ToleratedFailureCountPath", "ToleratedFailurePercentagePath"}
    ),
}
JSONATA: Final[dict[str, frozenset[str]]] = {
    "Task": frozenset(_EVERY | _FLOW | _WORK | _LIMITS | {"Resource", "Arguments", "Output", "Credentials", "Assign"}),
    "Pass": frozenset(_EVERY | _FLOW | {"Output", "Assign"}),
    "Choice": frozenset(_EVERY | {"Choices", "Default", "Output", "Assign"}),
    "Wait": frozenset(_EVERY | _FLOW | {"Seconds", "Timestamp", "Output", "Assign"}),
    "Succeed": frozenset(_EVERY | {"Output"}),
    "Fail": frozenset(_EVERY | {"Error", "Cause"}),
    "Parallel": frozenset(_EVERY | _FLOW | _WORK | {"Branches", "Arguments", "Output", "Assign"}),
    "Map": frozenset(_EVERY | _FLOW | _WORK | _MAP | {"Items", "Output", "Assign"}),
}
PATHS: Final = {
    "InputPath": "any",
    "OutputPath": "any",
    "ItemsPath": "value",
    "ResultPath": "write",
    "SecondsPath": "value",
    "TimestampPath": "value",
    "TimeoutSecondsPath": "value",
    "HeartbeatSecondsPath": "value",
    "MaxConcurrencyPath": "value",
    "ToleratedFailureCountPath": "value",
    "ToleratedFailurePercentagePath": "value",
    "ErrorPath": "call",
    "CausePath": "call",
}
"""Fields that are a path. `any`: or null; `write`: a reference path into the data, or null; `value`: a path; `call`: a path or a call."""
TEMPLATES: Final = ("Parameters", "ResultSelector", "ItemSelector", "Assign", "Credentials")
EXPRESSIONS: Final = (
    "Arguments",
    "Output",
    "Assign",
    "Items",
    "ItemSelector",
    "ItemReader",
    "ItemBatcher",
    "ResultWriter",
    "Seconds",
    "Timestamp",
    "Error",
    "Cause",
    "TimeoutSeconds",
    "HeartbeatSeconds",
    "MaxConcurrency",
    "ToleratedFailureCount",
    "ToleratedFailurePercentage",
    "Credentials",
)
"""Fields of JSONata states that may hold expressions."""
PAIRS: Final = (
    ("Error", "ErrorPath"),
    ("Cause", "CausePath"),
    ("TimeoutSeconds", "TimeoutSecondsPath"),
    ("HeartbeatSeconds", "HeartbeatSecondsPath"),
    ("MaxConcurrency", "MaxConcurrencyPath"),
    ("ToleratedFailureCount", "ToleratedFailureCountPath"),
    ("ToleratedFailurePercentage", "ToleratedFailurePercentagePath"),
    ("ItemProcessor", "Iterator"),
    ("ItemSelector", "Parameters"),
)
"""Only one of each may be there."""
NUMBERS: Final = {
    "TimeoutSeconds": (1, 99_999_999),
    "HeartbeatSeconds": (1, 99_999_999),
    "Seconds": (0, 99_999_999),
    "MaxConcurrency": (0, 2**31 - 1),
    "ToleratedFailureCount": (0, 2**31 - 1),
    "ToleratedFailurePercentage": (0, 100),
}
ACTIONS: Final = {
    "dynamodb": ("getItem", "putItem", "deleteItem", "updateItem"),
    "lambda": ("invoke",),
    "sqs": ("sendMessage",),
    "sns": ("publish",),
    "events": ("putEvents",),
    "states": ("startExecution",),
    "ecs": ("runTask",),
    "batch": ("submitJob",),
    "http": ("invoke",),
    "codebuild": (
        "startBuild",
        "stopBuild",
        "batchDeleteBuilds",
        "batchGetReports",
        "startBuildBatch",
        "stopBuildBatch",
        "retryBuildBatch",
        "deleteBuildBatch",
    ),
}
"""Optimised integrations: everything that each of these services can do."""
