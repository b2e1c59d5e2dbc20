"""Workflows executed on a virtual clock to compare queue configurations. Called by `penstock queue simulate`."""
