"""The command line: main (the table of commands), commands (their options), ui (what is printed)."""
