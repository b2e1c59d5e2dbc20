"""Over time: the only package that waits. machine folds the log of a run, loop makes things happen, share makes them happen once."""
