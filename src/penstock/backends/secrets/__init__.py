"""Secrets: where their texts come from (sources), attempts with the texts in place (reveal), and what is printed without them (mask,
masked_log)."""
