"""What authors import to run a workflow from Python: LocalRunner, ArgoRunner, TektonRunner, JobSetRunner."""
