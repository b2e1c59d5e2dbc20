"""Workflow -> Argo documents. Entry point: write.workflow."""
