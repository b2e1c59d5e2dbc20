"""Random expressions, types, values and workflows. Every class and field of the model is drawn by something in here."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from penstock.expressions.parse import (
    FUNCTIONS,
    MACROS,
    METHODS,
    Binary,
    Call,
    Choice,
    Const,
    Expr,
    Index,
    ListOf,
    Macro,
    MapOf,
    Member,
    Name,
    Node,
    Unary,
    is_identifier,
    reference,
)
from penstock.expressions.template import Template
from penstock.expressions.types import SCALARS, Type, list_of, optional
from penstock.graph import quantity
from penstock.graph.callback import CALLBACK_ENDS, CALLBACK_METHODS, VERDICTS, AnswerRule, Callback, CallbackRetry
from penstock.graph.model import (
    ENOUGH_OF,
    JUDGED_BY,
    LINK_ON,
    MISSING,
    MOUNT_SCOPES,
    PART_ON_ERROR,
    RESOURCE_ACTIONS,
    RETRY_ON,
    Answer,
    Backoff,
    Cache,
    Container,
    Edge,
    Enough,
    EnoughTasks,
    ForEach,
    Function,
    Http,
    Input,
    Link,
    Lock,
    Mount,
    Nested,
    Outcome,
    Output,
    Parameter,
    Part,
    PayloadIdentity,
    Placement,
    Pod,
    Resource,
    Retry,
    Script,
    Step,
    Suspend,
    Toleration,
    Unit,
    While,
    Workflow,
)

MORE = int(os.environ.get("PENSTOCK_FUZZ", "0"))
"""Set to 20 to look twenty times as hard, at other examples each time."""


def examples(number: int) -> settings:
    """So many examples, of those that the profile in tests/conftest.py gives; PENSTOCK_FUZZ asks for more."""
    return settings(
        max_examples=number * max(MORE, 1),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


# -- text -------------------------------------------------------------------------------------------------------------

NASTY = (
    "",
    " ",
    "$",
    "$$",
    "${{",
    "$${{",
    "}}",
    "{{",
    "${{ a }}",
    '"',
    "'",
    "\\",
    "a\nb\n",
    "\n",
    " a\n b",
    "a: b",
    "- a",
    "#",
    "yes",
    "null",
    "~",
    "0644",
    "1e3",
    "1:30",
    "2026-01-01",
    "<<",
    "=",
    "!",
    "&a",
    "*a",
    "\t",
    "a\tb",
    "\r\n",
    "\x00",
    "\x1b",
    "\x7f",
    "\x85",
    "\xa0",
    "\u2028",
    "\ufeff",
    "é",
    "日本",
    "😀",
    "a" * 200,
    "word " * 40,
)
anything = st.text(max_size=8) | st.sampled_from(NASTY) | st.lists(st.sampled_from(NASTY), max_size=4).map("".join)
names = st.sampled_from(["a", "b", "c", "train", "a-b", "x1"])
identifiers = st.sampled_from(["a", "b", "x", "params", "steps", "item", "size", "e5", "_", "map"])


# -- expressions ------------------------------------------------------------------------------------------------------

constants = st.builds(
    Const,
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | anything,
)
_OPERATORS = ["||", "&&", "==", "!=", "<=", ">=", "<", ">", "in", "+", "-", "*", "/", "%"]


def _calls(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    def function(name: str) -> st.SearchStrategy[Node]:
        if name == "has":
            return st.builds(lambda of, field: Call("has", (reference_of(of, field),)), inner, identifiers)
        arity = FUNCTIONS[name]
        low, high = (arity, arity) if isinstance(arity, int) else arity
        return st.lists(inner, min_size=low, max_size=high).map(lambda args: Call(name, tuple(args)))

    def method(name: str) -> st.SearchStrategy[Node]:
        number = METHODS[name]
        return st.builds(
            lambda of, args: Call(name, tuple(args), of), inner, st.lists(inner, min_size=number, max_size=number)
        )

    return st.sampled_from(sorted(FUNCTIONS)).flatmap(function) | st.sampled_from(sorted(METHODS)).flatmap(method)


def reference_of(of: Node, field: str) -> Node:
    """`of.field`, or `of["field"]` when the field is no identifier: what the parser makes of both."""
    return Member(of, field) if is_identifier(field) else Index(of, Const(field))


def _index(of: Node, index: Node) -> Node:
    return (
        reference_of(of, index.value) if isinstance(index, Const) and isinstance(index.value, str) else Index(of, index)
    )


def _unary(op: str, of: Node) -> Node:
    """The parser folds the sign into a number."""
    if op == "-" and isinstance(of, Const) and type(of.value) in (int, float):
        return Const(-of.value)
    return Unary(op, of)


def _composite(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.builds(reference_of, inner, identifiers | anything),
        st.builds(_index, inner, inner),
        st.builds(_unary, st.sampled_from("!-"), inner),
        st.builds(Binary, st.sampled_from(_OPERATORS), inner, inner),
        st.builds(Binary, st.sampled_from(_OPERATORS), inner, inner),
        st.builds(Choice, inner, inner, inner),
        st.lists(inner, max_size=3).map(lambda items: ListOf(tuple(items))),
        st.lists(st.tuples(inner, inner), max_size=2).map(lambda items: MapOf(tuple(items))),
        st.builds(Macro, st.sampled_from(MACROS), inner, identifiers, inner),
        _calls(inner),
    )


nodes: st.SearchStrategy[Node] = st.recursive(constants | identifiers.map(Name), _composite, max_leaves=8)
"""Trees that the parser can give."""


paths = st.one_of(
    st.builds(lambda name: reference("params", name), names),
    st.builds(lambda name, out: reference("steps", name, "outputs", out), names, names),
    st.builds(lambda name: reference("steps", name, "outcome"), names),
    st.builds(lambda root, name: reference(root, name), st.sampled_from(["item", "inputs", "outputs"]), names),
    st.sampled_from(
        [Name("params"), Name("steps"), reference("steps", "a"), reference("workflow", "outcome"), Name("nothing")]
    ),
)
small = paths | constants
expressions = st.one_of(
    paths,
    st.builds(Binary, st.sampled_from(_OPERATORS), small, small),
    st.builds(lambda of: Unary("!", of), paths),
    nodes,
).map(Expr.tree)
conditions = st.one_of(
    st.builds(Binary, st.sampled_from(["==", "<", "!=", "&&"]), paths, constants), paths, constants
).map(Expr.tree)


def _is_text(expr: Expr) -> bool:
    return isinstance(expr.node, Const) and isinstance(expr.node.value, str)


template_expressions = expressions.filter(lambda expr: not _is_text(expr))
"""`${{ "text" }}` is text and not an expression."""


@st.composite
def templates(draw: st.DrawFn) -> Template:
    """As the parser gives them: no empty text, no two texts in a row, at least one expression, never alone."""
    parts: list[str | Expr] = []
    for part in draw(st.lists(anything.filter(bool) | template_expressions, min_size=2, max_size=5)):
        if parts and isinstance(part, str) and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)
    if len(parts) == 1 or not any(isinstance(part, Expr) for part in parts):
        parts = [str(parts[0]) if isinstance(parts[0], str) else "a", draw(template_expressions)]
    return Template(tuple(parts))


# -- types and values -------------------------------------------------------------------------------------------------


def _generic(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.one_of(
        inner.map(list_of),
        inner.map(lambda item: Type("dict", (item,))),
        inner.map(optional),
        st.lists(inner, max_size=3).map(lambda items: Type("tuple", tuple(items))),
    )


types = st.recursive(st.sampled_from([Type(name) for name in SCALARS]), _generic, max_leaves=4)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | anything
)
plain = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3), max_leaves=6
)
"""JSON."""


def frozen(value: Any) -> Any:
    """As the model keeps it: lists are tuples."""
    if isinstance(value, list):
        return tuple(map(frozen, value))
    return {key: frozen(item) for key, item in value.items()} if isinstance(value, dict) else value


plain_values = plain.map(frozen)
values = st.recursive(
    scalars | template_expressions | templates(),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=4,
)
texts = anything | template_expressions | templates()


def value_of(wanted: Type) -> st.SearchStrategy[Any]:
    """Values of one type."""
    simple: dict[str, st.SearchStrategy[Any]] = {
        "any": st.none()
        | st.booleans()
        | st.integers(-3, 3)
        | st.sampled_from(["", "a", "12"])
        | st.lists(st.integers(-1, 1), max_size=2),
        "null": st.none(),
        "bool": st.booleans(),
        "int": st.integers(-4, 4) | st.sampled_from([2**63 - 1, -(2**63)]),
        "float": st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e300, float("inf"), float("nan")]) | st.integers(-2, 2),
        "str": st.sampled_from(["", "a", "ab", "1", "-2.5", "é", "true"]),
    }
    simple |= {"file": simple["str"], "dir": simple["str"], "object": simple["any"]}
    if wanted.name in simple:
        return simple[wanted.name]
    if wanted.name == "optional":
        return st.none() | value_of(wanted.args[0])
    if wanted.name == "tuple" and wanted.args:
        return st.tuples(*map(value_of, wanted.args)).map(list)
    if wanted.name == "dict":
        return st.dictionaries(st.sampled_from(["a", "b", "c"]), value_of(wanted.item), max_size=3)
    return st.lists(value_of(wanted.item), max_size=3)


# -- workflows --------------------------------------------------------------------------------------------------------

seconds = st.none() | st.sampled_from([0, 1, 600, 600.0, 0.25, -1.5, 1e9])
numbers = st.sampled_from([0, 1, 1.0, 2, 0.5, -3.25, 300, 1e7])
counts = st.none() | st.integers(-1, 10**8)
mappings = st.dictionaries(anything, values, max_size=2)
labels = st.dictionaries(anything, anything, max_size=2)
some_values = st.lists(values, max_size=3).map(tuple)
maybe_text = st.none() | anything
maybe_condition = st.none() | conditions

parameters = st.builds(
    Parameter, name=names, type=types, default=st.just(MISSING) | values, choices=some_values, doc=anything
)
inputs = st.builds(Input, name=names, value=values, type=types, path=maybe_text, default=st.just(MISSING) | values)
outputs = st.builds(
    Output, name=names, type=types, path=maybe_text, value=st.just(MISSING) | values, default=st.just(MISSING) | values
)
parts = st.builds(
    Part,
    name=names | anything,
    image=st.none() | texts,
    command=some_values,
    args=some_values,
    source=st.none() | texts,
    env=mappings,
    workdir=st.none() | texts,
    needs=st.none() | st.lists(names | anything, max_size=2).map(tuple),
    when=st.lists(
        st.dictionaries(st.sampled_from(["input", "operator", "values", "x"]), values, max_size=3), max_size=2
    ).map(tuple),
    on_error=st.sampled_from(PART_ON_ERROR) | anything,
    timeout=seconds,
    sidecar=st.booleans(),
    results=labels,
)
actions = st.one_of(
    st.builds(Container, image=texts, command=some_values, args=some_values, env=mappings, workdir=maybe_text),
    st.builds(Script, source=texts, command=some_values, image=st.none() | texts, env=mappings, workdir=maybe_text),
    st.builds(Function, module=anything, name=anything, code=anything, image=st.none() | texts, env=mappings),
    st.builds(
        Resource,
        manifest=values,
        action=st.sampled_from(RESOURCE_ACTIONS) | anything,
        success_condition=maybe_condition,
        failure_condition=maybe_condition,
    ),
    st.builds(Suspend, duration=seconds, message=texts),
    st.builds(Http, url=texts, method=anything, headers=mappings, body=values, success_condition=maybe_condition),
    st.builds(Pod, parts=st.lists(parts, max_size=2).map(tuple)),
    st.builds(Nested, name=names),
)
edges = st.builds(Edge, names, st.frozensets(st.sampled_from(Outcome)))
loops_over = st.builds(
    ForEach,
    axes=st.lists(st.dictionaries(names, values, max_size=2), max_size=3).map(tuple),
    parallel=counts,
    gang=st.booleans(),
    at_once=st.none() | conditions,
    enough=st.none() | st.builds(EnoughTasks, when=conditions, beyond=values),
)
whiles = st.builds(
    While,
    condition=conditions,
    carry=st.dictionaries(names, names, max_size=2),
    max_iterations=st.integers(-1, 1000),
    test=st.sampled_from(["before", "after", "whenever"]),
    at_limit=st.sampled_from(["stop", "fail", ""]),
)
backoffs = st.builds(Backoff, initial=numbers, factor=numbers, longest=numbers, jitter=numbers)
retries = st.builds(
    Retry,
    limit=st.integers(-1, 9),
    backoff=backoffs,
    on=st.lists(st.sampled_from(RETRY_ON) | anything, max_size=3).map(tuple),
    exit_codes=st.lists(st.integers(-1, 255), max_size=2).map(tuple),
    exceptions=st.lists(anything, max_size=2).map(tuple),
    when=maybe_condition,
    within=seconds,
)
tolerations = st.builds(
    Toleration,
    key=anything,
    operator=anything,
    value=anything,
    effect=anything,
    seconds=st.none() | st.integers(-1, 99),
)
placements = st.builds(
    Placement, node_selector=labels, tolerations=st.lists(tolerations, max_size=2).map(tuple), affinity=values
)
resources = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "ephemeral-storage", "hugepages-2Mi", "-"]),
    st.integers(-1, quantity.LARGEST) | st.sampled_from([0, 1, 500, 1000, 4 * 2**30 * 1000]),
    max_size=3,
)
priorities = st.none() | anything | st.integers(-(2**31), 2**31)
caches = st.builds(Cache, enabled=st.booleans(), version=anything, ttl=seconds, key=st.none() | texts)
answers = st.builds(Answer, within=seconds, heartbeat=seconds)
locks = st.builds(Lock, name=texts, limit=st.integers(-1, 9))
lengths = st.sampled_from([0, 1, 30, 0.25, -1.5, 1e9])
callbacks = st.builds(
    Callback,
    name=names | anything,
    url=values,
    on=st.lists(st.sampled_from(CALLBACK_ENDS) | anything, max_size=2).map(tuple),
    items=values,
    filter=maybe_condition,
    method=st.sampled_from(CALLBACK_METHODS) | anything,
    headers=mappings,
    body=values,
    secret=st.none() | values,
    answers=st.lists(
        st.builds(
            AnswerRule,
            then=st.sampled_from(VERDICTS) | anything,
            status=st.lists(st.integers(0, 700) | anything, max_size=2).map(tuple),
            when=maybe_condition,
        ),
        max_size=2,
    ).map(tuple),
    retry=st.builds(CallbackRetry, attempts=st.integers(-1, 200), initial=lengths, factor=lengths, longest=lengths),
    timeout=lengths,
)
mounts = st.builds(
    Mount,
    name=names | anything,
    path=anything,
    scope=st.sampled_from(MOUNT_SCOPES) | anything,
    sub_path=texts,
    files=mappings,
    read_only=st.booleans(),
)


def _mostly(default: Any, other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A field that is set in one step of four, so that a step with many fields stays small."""
    return st.integers(0, 3).flatmap(lambda number: other if number == 0 else st.just(default))


steps = st.builds(
    Step,
    name=names | anything,
    action=actions,
    inputs=_mostly((), st.lists(inputs, max_size=2).map(tuple)),
    outputs=_mostly((), st.lists(outputs, max_size=2).map(tuple)),
    needs=_mostly((), st.lists(edges, max_size=2).map(tuple)),
    trigger=_mostly(None, conditions),
    when=_mostly(None, conditions),
    each=_mostly(None, loops_over),
    loop=_mostly(None, whiles),
    retry=_mostly(None, retries),
    timeout=_mostly(None, seconds),
    resources=_mostly({}, resources),
    replicas=_mostly(1, st.integers(-1, 10**8)),
    placement=_mostly(None, placements),
    queue=_mostly(None, anything),
    priority=_mostly(None, priorities),
    group=_mostly(None, anything),
    exempt=_mostly(False, st.booleans()),
    tolerates=_mostly(frozenset(), st.frozensets(st.sampled_from(Outcome))),
    locks=_mostly((), st.lists(locks, max_size=2).map(tuple)),
    answer=_mostly(None, answers),
    mounts=_mostly((), st.lists(mounts, max_size=2).map(tuple)),
    cache=_mostly(Cache(), caches),
    extra=_mostly({}, mappings),
    doc=_mostly("", anything),
)


links = st.builds(
    Link,
    workflow=names,
    name=_mostly("", names),
    after=st.lists(names, max_size=2).map(tuple),
    on=st.lists(st.sampled_from(LINK_ON) | anything, max_size=2).map(tuple),
    when=maybe_condition,
    params=mappings,
)


payload_identities = st.builds(
    PayloadIdentity,
    param=names | anything,
    include=st.lists(st.sampled_from([".", ".a", ".a[].id"]) | anything, max_size=2).map(tuple),
    exclude=st.lists(st.sampled_from([".a", '."b c"']) | anything, max_size=2).map(tuple),
    version=st.integers(-1, 1 << 60),
)


def _workflows(definitions: st.SearchStrategy[tuple[Workflow, ...]]) -> st.SearchStrategy[Workflow]:
    return st.builds(
        Workflow,
        name=names | anything,
        params=st.lists(parameters, max_size=2).map(tuple),
        steps=st.lists(steps, max_size=3).map(tuple),
        outputs=_mostly((), st.lists(outputs, max_size=2).map(tuple)),
        on_exit=_mostly((), st.lists(steps, max_size=1).map(tuple)),
        queue=_mostly(None, anything),
        priority=_mostly(None, priorities),
        unit=_mostly(None, st.sampled_from(Unit)),
        parallel=_mostly(None, counts),
        timeout=_mostly(None, seconds),
        fail_fast=st.booleans(),
        judged_by=_mostly("handled", st.sampled_from(JUDGED_BY) | anything),
        enough=_mostly(
            None,
            st.builds(Enough, steps=st.lists(names, max_size=2).map(tuple), of=st.sampled_from(ENOUGH_OF) | anything),
        ),
        locks=_mostly((), st.lists(locks, max_size=2).map(tuple)),
        links=_mostly((), st.lists(links, max_size=2).map(tuple)),
        callbacks=_mostly((), st.lists(callbacks, max_size=2).map(tuple)),
        payload=_mostly(None, payload_identities),
        extra=_mostly({}, mappings),
        definitions=definitions,
        labels=_mostly({}, labels),
        doc=_mostly("", anything),
    )


workflows = _workflows(_mostly((), st.lists(_workflows(st.just(())), max_size=2).map(tuple)))
"""Not good ones: names meet, miss and repeat, types and numbers are anything that the model's classes allow."""

ALL_CLASSES = (
    Workflow,
    Step,
    Answer,
    Parameter,
    Link,
    Input,
    Output,
    Container,
    Script,
    Function,
    Resource,
    Suspend,
    Http,
    Nested,
    Edge,
    ForEach,
    While,
    Backoff,
    Retry,
    Toleration,
    Placement,
    Cache,
    Pod,
    Part,
    Enough,
    PayloadIdentity,
    EnoughTasks,
    Lock,
    Mount,
)
