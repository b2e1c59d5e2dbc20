"""What people see of the server: pages that work without a script, and follow what happens with one.

site    templates, errors as pages, signing in
oidc    signing in at a provider, signing out
runs    the list of runs, a run with its tabs, a task
people  who did what
graph   the steps of a run as boxes
queues  the queues, and one with its line, its plots and its what-if box
cluster the same of a cluster beside the store, and why something waits there
flows   workflows by name; of a run its plan and its cost
schedules  workflows that are run by the clock
usage   what was asked for, used and paid
submit, convert  a workflow is pasted: to run it, or to see it in another format
doctor  how the server's side is
"""

from penstock.server.pages import (
    cluster,
    convert,
    doctor,
    flows,
    graph,
    oidc,
    people,
    queues,
    runs,
    schedules,
    site,
    submit,
    usage,
)
from penstock.server.pages.site import STATIC, shown

ROUTERS = tuple(
    one.router
    for one in (site, oidc, runs, graph, queues, cluster, flows, schedules, usage, submit, convert, doctor, people)
)

__all__ = ["ROUTERS", "STATIC", "shown"]
