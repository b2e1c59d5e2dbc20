"""Documents that wait in a queue, and the way back. Shared by the gates of all formats."""
