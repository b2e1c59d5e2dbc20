"""Tests of penstock.graph: the nouns, expressions, documents and what a good workflow satisfies."""
