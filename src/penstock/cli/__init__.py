"""Terminal in: a command line -> one call of service -> text. Nothing here decides anything."""
