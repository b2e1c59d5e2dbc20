"""The model of a workflow and the functions that read it. Pure: no I/O."""
