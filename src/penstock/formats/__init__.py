"""Foreign documents and pictures: what other tools write and read, to and from the workflow. Pure text in, pure text out."""
