"""Workflow -> stages, demand, reservations, keys. Pure: property tests can drive it by the million."""
