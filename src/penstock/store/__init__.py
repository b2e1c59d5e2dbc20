"""What happened: an append-only log of events, and views of it. Called by engine and service."""
