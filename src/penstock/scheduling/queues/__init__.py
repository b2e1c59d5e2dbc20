"""YuniKorn's queue configuration: `model` (what it says) · `read` (from a document, strictly) · `check` (what YuniKorn would refuse) · `access` (who may submit) ·
`to_kueue` and `from_kueue` (the same queues for the other scheduler). Called by service.yunikorn (for `penstock queue apply` and `convert`), service.access and service.fitting.
"""
