"""Documents of other systems: read into workflows, written from workflows, gated. Called by service and runners. Pure."""
