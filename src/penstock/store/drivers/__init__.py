"""The databases: SQLite and PostgreSQL. Called by store.sql alone."""
