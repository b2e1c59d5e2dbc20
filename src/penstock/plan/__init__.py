"""Workflow -> stages, demand, reservations, keys. Pure."""
