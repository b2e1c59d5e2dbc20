"""Kubernetes in: workflows of Argo, Tekton, JobSet and others wait in the queues of the real Kueue, stage by stage.

    names, objects   words and plain data: what may be seen and written
    engine           the interface for workflow engines; engines/ has Argo, Tekton and JobSet
    workload         Kueue's Workload: how it is made, read and answered
    core             what is seen of one workflow -> what to write. Pure, without a memory
    admit            what the webhook answers. Pure
    cluster/         the shell: work queue, leader election, webhook server; penstock.kubernetes has client and watches

All state is in the cluster, so starting is recovering.
"""
