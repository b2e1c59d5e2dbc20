"""The admission engine and a live Kueue, asked the same things: random queues, random streams of Workloads, and the answers compared at
every point at which Kueue is quiet. Driven by tests/cluster/test_differential.py; `python -m tests.cluster.differential` replays a stream.
"""
