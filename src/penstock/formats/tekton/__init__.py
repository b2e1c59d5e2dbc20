"""Tekton Pipelines: reader, writer, gate. Loaded by formats.registry."""
