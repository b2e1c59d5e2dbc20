"""Python -> Workflow: the object form (jobs, control) and the function form (tasks, flow, compiler). Both build the same graph."""
