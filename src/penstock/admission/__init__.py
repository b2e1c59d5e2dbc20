"""Workloads -> decisions, by Kueue's rules (v0.19.2). Pure and deterministic: no clock and no I/O; the caller passes the time.

The engine (in every run), the simulator and the conformance tests all use `scheduler.Scheduler`.
"""
