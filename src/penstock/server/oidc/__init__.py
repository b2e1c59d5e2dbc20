"""Signing in at pages through an OpenID provider: authorization code with PKCE. Used by pages.oidc.

settings  the provider and who may do what, as the file of `penstock serve --sign-in` says
claims    what the provider says of a person → name, groups, role. Pure
provider  the provider, asked over HTTP; what it signs is checked
"""
