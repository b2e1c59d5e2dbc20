"""The parts of the Argo reader. What is called from outside is formats.argo_read."""
