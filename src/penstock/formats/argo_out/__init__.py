"""The parts of the Argo writer. The way in is formats.argo_write."""
