"""Which pods each kind of object makes: how many, how large, and where their metadata is written. `table` has a row for each kind; the other modules read them."""
