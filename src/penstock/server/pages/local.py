"""Where a link may lead after signing in. Called by site and oidc."""

from __future__ import annotations


def local(path: str) -> str:
    """A path of this server, whatever somebody has put into the link."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"
