"""Argo documents -> Workflow. Entry point: read.workflow."""
