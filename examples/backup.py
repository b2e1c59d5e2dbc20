"""Operations: copy, verify by restoring, and only then delete the oldest. Shell commands as steps, run on this machine.

penstock run examples/backup.py --on container=process
"""

from penstock import ScriptJob, Workflow, WorkflowParam

keep = WorkflowParam("keep", int, 2)
copy = ScriptJob(
    "copy",
    """
    mkdir -p data && echo "precious" > data/ledger.txt
    tar -cf "$PENSTOCK_OUTPUTS/archive" data
    sha256sum data/ledger.txt | cut -c1-16 > "$PENSTOCK_OUTPUTS/sum"
    """,
    outputs=[WorkflowParam("archive", "file"), WorkflowParam("sum", str)],
    cpu=1,
    cache=False,
)
verify = ScriptJob(
    "verify",
    """
    tar -xf "${{ inputs.archive }}"
    test "$(sha256sum data/ledger.txt | cut -c1-16)" = "${{ inputs.sum }}"
    """,
    inputs={"archive": copy.outputs["archive"], "sum": copy.outputs["sum"]},
    cpu=1,
)
rotate = ScriptJob("rotate", "echo keeping the last ${{ inputs.keep }}", inputs={"keep": keep}).after(verify)
alarm = ScriptJob("alarm", "echo 'the backup is not good' >&2").after(verify, outcomes=["failed", "errored"])
bye = ScriptJob("bye", "echo the backup has ${{ workflow.outcome }}")

flow = Workflow(
    "backup", [copy, verify, rotate, alarm], params=[keep], on_exit=[bye], outputs={"sum": copy.outputs["sum"]}
)
