"""The gate of Argo documents. Called by argo.format."""
