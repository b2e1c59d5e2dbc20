"""Argo Workflows: reader, writer, stages, demand, gate. Loaded by formats.registry."""
