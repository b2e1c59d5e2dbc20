"""Workflow -> Tekton documents. Entry point: write.workflow."""
