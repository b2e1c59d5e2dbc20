"""The expression languages of Argo and Tekton, translated into Penstock's own (graph.expr), which is the only one that is run."""
