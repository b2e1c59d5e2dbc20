"""What is felt every day: how long until the first line."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Figure, process


def figures() -> Iterator[Figure]:
    bare = process("-c", "pass")
    yield Figure(
        "import penstock, above bare Python", process("-c", "import penstock") - bare, 60, "ms", bare, "bare Python"
    )
    both = "from penstock import task, workflow, ContainerJob, Workflow, for_loop"
    yield Figure("import of both forms, above bare Python", process("-c", both) - bare, None, "ms", bare, "bare Python")
    yield Figure("penstock --help", process("-m", "penstock", "--help"), 250, "ms", bare, "bare Python")
    yield Figure(
        "penstock plan of the example",
        process("-m", "penstock", "plan", "examples/finetune/flow.py"),
        None,
        "ms",
        bare,
        "bare Python",
    )
