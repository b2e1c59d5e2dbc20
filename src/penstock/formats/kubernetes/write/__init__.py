"""Workflow -> JobSet, Jobs, pod templates."""
