"""The only place that prints. Called by the commands with what service returns; imports no command."""
