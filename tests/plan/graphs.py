"""Random workflows for the planner's property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.expressions.parse import Expr
from penstock.expressions.types import INT
from penstock.graph.model import (
    Container,
    Edge,
    ForEach,
    Function,
    Input,
    Nested,
    Output,
    Parameter,
    Placement,
    Step,
    Workflow,
)

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")


@st.composite
def steps(draw: st.DrawFn, names: str, nested: tuple[str, ...] = (), most: int = 6) -> tuple[Step, ...]:
    """Up to `most` steps; each may read or wait for some of those before it."""
    made: list[Step] = []
    for i in range(draw(st.integers(1, most))):
        ups = draw(st.lists(st.sampled_from(made), unique_by=lambda step: step.name, max_size=3)) if made else []
        reads = [up for up in ups if up.outputs and draw(st.booleans())]
        if nested and draw(st.integers(0, 3)) == 0:
            action: object = Nested(name=draw(st.sampled_from(nested)))
            inputs: tuple[Input, ...] = ()
            outputs: tuple[Output, ...] = ()
            resources: dict[str, int] = {}
        else:
            image = draw(st.sampled_from(["a", "b"]))
            action = (
                Container(image=image)
                if draw(st.booleans())
                else Function(module="m", name="f", code=f"sha256:{image}")
            )
            inputs = tuple(
                Input(name=f"i{k}", value=Expr.of(f"steps.{up.name}.outputs.x")) for k, up in enumerate(reads)
            )
            if draw(st.booleans()):
                inputs += (Input(name="p", value=draw(st.sampled_from([1, 2, Expr.of("params.n")]))),)
            outputs = (Output(name="x", type=INT),)
            resources = draw(
                st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 8).map(lambda n: n * 1000), max_size=3)
            )
        looped = draw(st.sampled_from([None, None, None, 2, 3, 0]))
        read_names = {up.name for up in reads}
        made.append(
            Step(
                name=f"{names}{i}",
                action=action,  # type: ignore[arg-type]
                inputs=inputs,
                outputs=outputs,
                needs=tuple(Edge(up.name) for up in ups if up.name not in read_names),
                when=draw(st.sampled_from([None, None, Expr.of("params.n > 1")])),
                each=None
                if looped is None
                else ForEach(axes=({"v": tuple(range(looped))},), parallel=draw(st.sampled_from([None, 1, 2]))),
                resources=resources,
                replicas=draw(st.sampled_from([1, 1, 2])),
                placement=draw(st.sampled_from([None, None, Placement(node_selector={"zone": "a"})])),
                queue=draw(st.sampled_from([None, None, "q1", "q2"])),
            )
        )
    return tuple(made)


@st.composite
def workflows(draw: st.DrawFn, name: str = "w", most: int = 6) -> Workflow:
    definitions = []
    for k in range(draw(st.integers(0, 2))):
        inner = draw(steps("d", tuple(each.name for each in definitions), most=3))
        definitions.append(
            Workflow(
                name=f"{name}-inner{k}",
                params=(Parameter(name="n", type=INT, default=draw(st.integers(0, 3))),),
                steps=inner,
            )
        )
    own = draw(steps("s", tuple(each.name for each in definitions), most=most))
    default = draw(st.integers(0, 3))
    return Workflow(
        name=name,
        params=(Parameter(name="n", type=INT, default=default),),
        steps=own,
        definitions=tuple(definitions),
        queue=draw(st.sampled_from([None, "q1"])),
    )
