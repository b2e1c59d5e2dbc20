"""Runs over time: the only package that waits. `engine.Engine` orders a turn; its parts are listed there. Called by service."""
