"""A Workflow -> a state machine: `machine` writes a workflow, `steps` each step, `order` says what stands beside what, `expression` the values. Called by format."""
