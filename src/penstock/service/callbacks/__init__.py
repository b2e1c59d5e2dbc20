"""Callbacks: requests to receivers that say how a run has ended. A courier delivers them, from the outbox.

Parts:

    entries    what is to follow from the end of a run, for its record; callbacks of the command line
    render     a run and a callback → requests. Pure
    answers    an answer → success, retry or fatal. Pure
    backoff    how long to wait before the next attempt. Pure
    guard      which addresses may be asked. Pure
    sender     one request over the network, to an address that the guard has let pass
    ends       what the store knows of a run that has ended
    delivery   the rows that are due: rendered, sent by threads, settled

What was sent is shown, and sent again by hand, by service.callback_records.
"""
