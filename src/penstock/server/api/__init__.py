"""What programs ask of the server, below /api/v1. Each module has the routes of one subject; app takes them in."""
