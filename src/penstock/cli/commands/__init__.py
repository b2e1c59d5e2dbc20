"""The commands: arguments, options, help texts. A command imports what it executes when it runs."""
