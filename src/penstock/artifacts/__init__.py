"""Values and files that pass between steps, whatever their size. Called by backends, by worker processes and by the engine."""
