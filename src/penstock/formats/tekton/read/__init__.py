"""Tekton documents -> Workflow. Entry point: read.workflow."""
