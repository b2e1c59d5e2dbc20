"""Kueue's documents: read, validated, written. Called by the engine's replica of the queues, by service and by the conformance tests."""
