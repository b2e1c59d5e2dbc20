"""The shell of the controller: all that touches the network, threads or the clock. Used by `penstock controller`; independent of what is decided.

    workqueue      which workflow is looked at next
    leader         which replica acts
    certificates   the webhooks' certificates, shared by the replicas
    server         webhooks by HTTPS; health and metrics by HTTP
    events         Kubernetes Events, each once
    metrics        what is measured
    run            Manager: ties them together

How the API server is reached, and what is kept of its objects, is in penstock.kubernetes. It needs the extra `penstock[controller]`.
"""
