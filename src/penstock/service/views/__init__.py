"""What screens and pages show of runs and queues, read from the store. Called by cli, runners and the verbs of service."""
