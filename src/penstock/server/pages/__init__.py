"""What people see of the server: pages that work without a script, and follow what happens with one.

site    templates, errors as pages, signing in
runs    the list of runs, a run with its tabs, a task
queues  the queues, and one with its line
"""

from penstock.server.pages import queues, runs, site
from penstock.server.pages.site import STATIC, shown

ROUTERS = (site.router, runs.router, queues.router)

__all__ = ["ROUTERS", "STATIC", "shown"]
