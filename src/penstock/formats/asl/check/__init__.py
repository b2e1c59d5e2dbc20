"""What a definition must keep before anything runs: `machine` walks it, `fields` knows what each kind of state may have. Called by read."""
