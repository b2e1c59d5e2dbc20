"""Why something waits in the queues of a cluster: for any Workload of the real Kueue, ours or not.

    kubectl    what there is in the cluster, read with the user's own kubectl
    state      the live objects as the queues of our admission code, so that it explains them as it explains those of this machine
    kinds      the kinds that users name
    subject    the object that a user names, and its Workloads
    why        what each of them waits for, or why there is none
    pods       what keeps the pods of an admitted Workload from running

Nothing here writes. Called by `penstock why KIND/NAME` and `penstock queue ls|show --cluster`.
"""
