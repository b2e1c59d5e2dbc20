"""The expression language: a subset of CEL, parsed, typed and evaluated. Called by graph and every package above. Pure."""
