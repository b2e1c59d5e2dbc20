"""Workflows that are run by the clock.

timing    when: lines of cron and intervals -> times. Pure
policy    which of the times that have come get a run. Pure
noun      a schedule, and its row in the store
verbs     add, pause, resume, remove, run now; what is shown of it
taken     schedules of CronWorkflows and CronJobs
clockwork the thread that makes runs when their time has come
"""
