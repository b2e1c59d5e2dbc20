"""A state machine -> Workflow: `machine` makes the steps of each level, `resources` what a Task does. Called by format."""
