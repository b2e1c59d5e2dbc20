"""Kueue's Workloads as objects of a cluster. Used by the controller, which makes them for other engines' workflows, and by the backend
kubernetes, which makes them for our own runs. Pure.

    kinds    the kinds of Kueue's API
    status   what a Workload's status says, and the patches that answer it

The protocol, with a proof for each rule, is in docs/ideas/kueue-protocol.md.
"""
