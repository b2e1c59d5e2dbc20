"""The shell of the controller: all that touches the network, threads or the clock. Used by `penstock controller`; independent of what is decided.

    kubeconfig     how to reach the API server, and as whom
    client         its verbs on plain dicts
    cache, watch   objects of one kind in memory, kept up to date by list and watch
    workqueue      which workflow is looked at next
    leader         which replica acts
    certificates   the webhooks' certificates, shared by the replicas
    server         webhooks by HTTPS; health and metrics by HTTP
    events         Kubernetes Events, each once
    metrics, log   what is measured and told
    run            Manager: ties them together

It needs the extra `penstock[controller]`.
"""
