"""Payloads: work that is known by what it works on. Submitting the same twice makes one run. Called by the commands, the server and runners.

canonical   JSON in one form, and refusing what is none
identity    what of a payload counts, and its id. Pure
decide      does a submission need a new run? Pure
read        a payload from text, within limits
submit      a payload -> its run, recorded in one transaction
verbs       list, show, invalidate, drive again
"""
