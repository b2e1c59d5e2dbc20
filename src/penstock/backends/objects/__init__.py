"""Parts of the backend of resource steps: when an object is done, the queue that it goes into, and what its pods said. Called by resource."""
