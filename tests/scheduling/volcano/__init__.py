"""The package of docs/howto/write-a-scheduler.md, as its author would install it."""
