"""Jobs of other operators under Kueue and YuniKorn: which pods an object makes, what they ask for, and the metadata that puts them into a queue.

Pure. Called by service.schedule and by plugins. Its parts, in order: `model` (the nouns) · `kinds` (the table: object → roles of pods) · `objects` (reads one
document by the table) · `demand` (pod sets) · `task_groups` (gangs) · `yunikorn`, `kueue` (the two schedulers) · `registry` (finds them) · `queueconfig` (the
document of an administrator) · `apply` (writes into documents) · `reading` (what YuniKorn understands of a pod) · `operators` (what other operators would
write) · `queues` (YuniKorn's queue configuration).
"""
