"""Workflow -> readable Python in the object form. Called by `wf.explain()` and by service for `convert --to python`.

The text builds the same workflow again, with the same digest. It shows what the compiler understood of a function. What
Python's operators cannot say is written as the text of an expression, which every field takes.
"""

from penstock.author.explain.program import explain

__all__ = ["explain"]
