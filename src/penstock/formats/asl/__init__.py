"""Amazon States Language. `language` is the language of values, `check` refuses definitions, `walk` says what a machine does next,
`read` makes a workflow of it. Loaded by formats.registry."""
