"""Python -> Workflow: the object form (jobs, control) and the function form (flow, compiler). Both build the same graph."""
