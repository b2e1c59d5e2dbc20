"""The server: runs and queues over HTTP, as JSON and as pages. Started by `penstock serve`.

It decides nothing: each answer is a call of service on the store that engines and commands use too, so several servers, workers and
commands work on one store at once. Parts:

    app        puts the parts together
    access     who asks, and may they: tokens, cookies, roles
    guard      what is refused before anybody looks at it: foreign hosts, too much, too often
    problems   errors as RFC 9457 says
    threads    the store, which is used from one thread: a few threads with one each
    feeds      the log, told on as it grows
    api, pages what is asked for: data, or the same for people
    models     the shapes of the data; record_models: those of records over time
    remembered answers that take long, for a moment
"""
