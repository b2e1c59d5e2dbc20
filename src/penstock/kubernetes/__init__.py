"""The Kubernetes API, on plain data. Used by the controller, by the commands for clusters, and by the backend `kubernetes`.

    objects        objects as the API server sends them, and what may be written. Pure
    kubeconfig     how to reach an API server; credentials: as whom
    client         its verbs on plain dicts
    cache, watch   objects of one kind in memory, kept up to date by list and watch
    log            structured logs of what runs for long

client needs httpx2: the extra `penstock[kubernetes]`.
"""
