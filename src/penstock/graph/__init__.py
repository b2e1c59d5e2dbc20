"""The nouns: what a workflow is, whoever wrote it and wherever it runs. Pure data and pure functions."""
