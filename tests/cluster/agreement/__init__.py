"""Penstock's own runs of Argo's and Tekton's documents beside runs of the real controllers: the same documents, the same pods that fail, and
how everything ended compared. Driven by tests/cluster/test_agreement.py; `python -m tests.cluster.agreement FILE…` compares single files.

    examples   which documents there are, and which passes each is played in
    prepare    what a document needs so that its pods start on fake nodes
    marks      the annotations that say how a pod ends; both sides read them
    ours       a pass on Penstock's engine, in virtual time
    argo, tekton   a pass on the real controllers, and what their objects tell
    told       how a run ended, and the differences of two such tellings
    intended   differences that are meant, as rules
    play       many passes at once
"""
