"""The semantics of Argo's Go libraries: how Go prints numbers and text, its times, sprig, govaluate. Called by expressions.functions. Pure."""
