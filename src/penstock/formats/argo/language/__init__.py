"""Argo's expression languages (tags, expr-lang, govaluate, depends), translated into Penstock's own. Called by the Argo reader and writer."""
