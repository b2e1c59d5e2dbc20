"""The backend for steps with an image: podman or docker."""
