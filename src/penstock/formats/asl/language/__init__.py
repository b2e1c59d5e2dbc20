"""Values in a state machine, as pure functions: paths, intrinsic functions, JSONata, payload templates, comparisons. Called by check and walk."""
