"""WfFormat, the JSON of recorded workflow executions (wfcommons.org)."""
