"""Acceptance tests of what integrators build on: payloads, chains, callbacks, schedules. Each is named by its number."""
