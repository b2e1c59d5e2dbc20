"""Chains: workflows that are run when others have ended. The model is graph.chains; the links of a run are rows of `Store.links`.

decide     what follows from the end of one run of a chain. Pure
passing    what a link gives to the run that it starts
delivery   does the rows of the outbox of kind `link`, one transaction each
following  goes on with a chain in this process until all of it has ended
"""
