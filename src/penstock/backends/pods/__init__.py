"""Pods, whatever runs them: the order of their parts, what parts read of each other, and their log."""
