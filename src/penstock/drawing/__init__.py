"""Draws workflows and quotas: Mermaid, DOT, trees, SVG, charts. Called by service. Pure."""
