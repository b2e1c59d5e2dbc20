"""Telling a tracking server (MLflow) of runs: parameters, metrics, outputs and files.

The log is what is told, and the store keeps how far it has been told (store.tracking), so nothing is written for it while a run goes on, and
nothing is lost if the server, the network or this process goes away. Parts:

    target    which server, from the environment and penstock.yaml
    client    MLflow's REST API
    entries   values -> parameters, metrics, tags, files. Pure
    teller    the events of one run -> calls
    sender    a thread beside the engine that tells what is still to be told. Made by service.hosting
"""
