"""Log analysis: a map over files by a shell command, a reduce in Python. Each command is a process; its text goes to the next step.

penstock run examples/logs.py --on container=process
"""

from penstock import FunctionJob, ScriptJob, Workflow, WorkflowParam, for_loop, task


@task
def hosts() -> list[str]:
    return ["web-1", "web-2", "db-1"]


@task(cpu=1)
def most(counts: list[str]) -> list[tuple[int, str]]:
    """The busiest minutes of all hosts."""
    lines = [line.split() for text in counts for line in text.splitlines()]
    return sorted(((int(n), minute) for n, minute in lines), reverse=True)[:3]


found = FunctionJob("hosts", hosts)


@for_loop(host=found.outputs["result"])
def count(host):
    return ScriptJob(
        "count",
        """
        host=${{ inputs.host }}
        for i in $(seq 1 60); do echo "12:0$((i * ${#host} % 7)) GET /"; done > access.log
        cut -d' ' -f1 access.log | sort | uniq -c > $PENSTOCK_OUTPUTS/text
        """,
        inputs={"host": host},
        outputs=[WorkflowParam("text", str)],
        cpu=1,
    )


busiest = FunctionJob("most", most, {"counts": count.outputs["text"]})
flow = Workflow("logs", [found, count, busiest], outputs={"result": busiest.outputs["result"]})
