"""Workloads -> decisions, by Kueue's rules (v0.19.2). Pure and deterministic: no clock, no I/O; whoever calls says what time it is.

The engine (every run), the simulator and the conformance test drive the same `queues.Queues`.
"""
