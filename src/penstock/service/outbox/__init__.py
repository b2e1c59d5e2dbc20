"""What is done after a run has ended, or because a time has come: rows of the outbox, and the couriers that work through them.

A row is written in the transaction of the fact that it follows from (engine.follow), so it is there exactly once, whatever dies. Parts:

    courier    a thread that takes the rows of one kind and has them done

Which kinds there are says service.couriers.
"""
