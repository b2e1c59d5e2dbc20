-- Every query of the store, by name. Read once by driver.py; called from sql.py. Plain enough for both databases:
-- `?` is a parameter, and `IN (*)` a list that the driver spells out; a list comes first among the parameters.
-- No RETURNING: SQLite has it only since 3.35, and Python runs on older ones.

-- name: meta
SELECT value FROM meta WHERE name = ?

-- name: put_meta
INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: count_up
-- Locks the counter until the commit: whoever comes next gets the next number, and later.
INSERT INTO counters (name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = counters.value + 1

-- name: counter
SELECT value FROM counters WHERE name = ?

-- name: put_workflow
INSERT INTO workflows (digest, document) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING

-- name: document
SELECT document FROM workflows WHERE digest = ?

-- name: put_run
INSERT INTO runs (number, id, workflow, digest, state, created, seq, username, counts, params, options)
VALUES (?, ?, ?, ?, 'stopped', ?, 1, ?, '{}', ?, ?)

-- name: update_run
-- The fence: an engine that no longer owns the run changes no row here.
UPDATE runs SET seq = ?, state = ?, ended = ?, counts = ?, outputs = ?, error = ?, invalid = ? WHERE number = ? AND engine = ?

-- name: take_free
-- Also true for who has it already, so that it may be asked again when the answer was lost.
UPDATE runs SET engine = ? WHERE number = ? AND (engine IS NULL OR engine = ?)

-- name: take_over
UPDATE runs SET engine = ? WHERE number = ? AND (engine = ? OR engine = ?)

-- name: release
UPDATE runs SET engine = NULL, state = ? WHERE number = ? AND engine = ?

-- name: run
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE id = ?

-- name: run_by_number
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE number = ?

-- name: runs
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE created >= ? ORDER BY number DESC LIMIT ?

-- name: runs_of
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE workflow = ? AND created >= ? ORDER BY number DESC LIMIT ?

-- name: runs_in
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE state IN (*) AND (CAST(? AS TEXT) IS NULL OR workflow = ?) AND created >= ?
ORDER BY number DESC LIMIT ?

-- name: run_seq
SELECT seq FROM runs WHERE number = ?

-- name: put_event
-- No ON CONFLICT: a sequence number used twice is a mistake, and must not pass.
INSERT INTO events (run, seq, at, kind, task, data) VALUES (?, ?, ?, ?, ?, ?)

-- name: events
SELECT seq, at, kind, task, data FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?

-- name: events_of
SELECT seq, at, kind, task, data FROM events WHERE kind IN (*) AND run = ? AND seq > ? ORDER BY seq LIMIT ?

-- name: put_task
INSERT INTO tasks (run, task, step, state, attempt, key, started, ended, info) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run, task) DO UPDATE SET step = excluded.step, state = excluded.state, attempt = excluded.attempt,
    key = excluded.key, started = excluded.started, ended = excluded.ended, info = excluded.info

-- name: tasks
SELECT task, step, state, attempt, key, started, ended, info
FROM tasks WHERE run = ? AND (CAST(? AS TEXT) IS NULL OR step = ?) ORDER BY task LIMIT ? OFFSET ?

-- name: tasks_in
SELECT task, step, state, attempt, key, started, ended, info
FROM tasks WHERE state IN (*) AND run = ? AND (CAST(? AS TEXT) IS NULL OR step = ?) ORDER BY task LIMIT ? OFFSET ?

-- name: task
SELECT task, step, state, attempt, key, started, ended, info FROM tasks WHERE run = ? AND task = ?

-- name: task_counts
SELECT step, state, count(*), min(started), max(ended) FROM tasks WHERE run = ? GROUP BY step, state

-- name: put_result
INSERT INTO results (key, outputs, run, task, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET outputs = excluded.outputs, run = excluded.run, task = excluded.task, at = excluded.at

-- name: results
SELECT key, outputs, run, task, at FROM results WHERE key IN (*)

-- name: put_lease
INSERT INTO leases (key, engine, run, task) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING

-- name: leases
SELECT key, engine, run, task FROM leases WHERE key IN (*)

-- name: drop_leases
DELETE FROM leases WHERE key IN (*) AND engine = ?

-- name: put_waiter
-- Who asks again starts anew: what an earlier computation said no longer counts.
INSERT INTO waiters (key, run, task, engine) VALUES (?, ?, ?, ?)
ON CONFLICT (key, run, task) DO UPDATE SET engine = excluded.engine, failure = NULL

-- name: fail_waiters
UPDATE waiters SET failure = ? WHERE key = ?

-- name: drop_waiter
DELETE FROM waiters WHERE key = ? AND run = ? AND task = ?

-- name: waiting
-- While somebody holds the key, a result that is there is an old one which is being computed afresh: it is left out.
SELECT w.key, w.run, w.task, w.failure, l.engine, l.run, l.task, r.outputs, r.run, r.task, r.at
FROM waiters w LEFT JOIN leases l ON l.key = w.key LEFT JOIN results r ON r.key = w.key AND l.key IS NULL
WHERE w.engine = ? ORDER BY w.run, w.task

-- name: put_engine
INSERT INTO engines (id, host, pid, born, beat, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid, born = excluded.born, beat = excluded.beat,
    at = excluded.at

-- name: beat
UPDATE engines SET beat = beat + 1, at = ? WHERE id = ?

-- name: engines
SELECT id, host, pid, born, beat FROM engines ORDER BY id

-- name: drop_engine
DELETE FROM engines WHERE id = ?

-- name: drop_leases_of
DELETE FROM leases WHERE engine = ?

-- name: drop_waiters_of
DELETE FROM waiters WHERE engine = ?

-- name: put_request
INSERT INTO requests (number, run, verb, data, at) VALUES (?, ?, ?, ?, ?)

-- name: requests
SELECT number, run, verb, data FROM requests WHERE run IN (*) AND number > ? ORDER BY number

-- name: drop_requests
DELETE FROM requests WHERE number IN (*)

-- name: put_outbox
INSERT INTO outbox (run, seq, kind, data, key, at, next_at) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: gc_run
-- Only a run that nobody works on, and of which nobody is to be told any more: what a callback says is in its record.
DELETE FROM runs WHERE number = ? AND engine IS NULL
AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.run = runs.number AND outbox.kind = 'callback' AND outbox.state = 'new')

-- name: gc_events
DELETE FROM events WHERE run = ?

-- name: gc_tasks
DELETE FROM tasks WHERE run = ?

-- name: gc_waiters
DELETE FROM waiters WHERE run = ?

-- name: gc_requests
DELETE FROM requests WHERE run = ?

-- name: gc_outbox
-- What has not been delivered yet still must be.
DELETE FROM outbox WHERE run = ? AND state <> 'new'

-- name: gc_workflow
DELETE FROM workflows WHERE digest = ? AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.digest = workflows.digest)
AND NOT EXISTS (SELECT 1 FROM schedules WHERE schedules.digest = workflows.digest)

-- name: gc_results
-- EXCEPT rather than NOT EXISTS: no index over the keys of tasks is needed, in neither database.
DELETE FROM results WHERE key IN (SELECT key FROM results WHERE at < ? EXCEPT SELECT key FROM tasks)

-- name: drop_results
DELETE FROM results WHERE key IN (*)

-- name: leases_by_engine
SELECT engine, count(*) FROM leases GROUP BY engine

-- name: text_of_events
SELECT run, seq, data FROM events WHERE (run, seq) > (?, ?) AND data LIKE ? ORDER BY run, seq LIMIT ?

-- name: text_of_tasks
SELECT run, task, info FROM tasks WHERE (run, task) > (?, ?) AND info LIKE ? ORDER BY run, task LIMIT ?

-- name: text_of_results
SELECT key, outputs FROM results WHERE key > ? AND outputs LIKE ? ORDER BY key LIMIT ?

-- name: text_of_workflows
SELECT digest, document FROM workflows WHERE digest > ? AND document LIKE ? ORDER BY digest LIMIT ?

-- name: text_of_outbox
SELECT number, data FROM outbox WHERE number > ? AND data LIKE ? ORDER BY number LIMIT ?

-- name: text_of_runs
SELECT number, options, params, outputs FROM runs WHERE number > ? ORDER BY number LIMIT ?

-- name: drop_tasks
-- Summaries that a retry takes back.
DELETE FROM tasks WHERE run = ? AND task = ?

-- name: one_key
-- Whatever is known of one key: its result (no engine), or who is at it. The way of chains, where every step asks for one.
SELECT '', outputs, run, task, at FROM results WHERE key = ? UNION ALL SELECT engine, '', run, task, 0 FROM leases WHERE key = ?

-- name: queue_objects
SELECT kind, name, version, document FROM queue_objects WHERE version > ? ORDER BY kind, name

-- name: put_queue_object
INSERT INTO queue_objects (kind, name, version, document) VALUES (?, ?, ?, ?)
ON CONFLICT (kind, name) DO UPDATE SET version = excluded.version, document = excluded.document

-- name: workloads
-- Those that are over tell others that they are; who begins anew need not hear of them.
SELECT key, version, run, engine, state, document FROM workloads WHERE version > ? ORDER BY version, key

-- name: workloads_open
SELECT key, version, run, engine, state, document FROM workloads WHERE state <> 'over' ORDER BY version, key

-- name: put_workload
INSERT INTO workloads (key, version, run, engine, state, document) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET version = excluded.version, run = excluded.run, engine = excluded.engine, state = excluded.state,
    document = excluded.document

-- name: end_workloads_of
UPDATE workloads SET state = 'over', version = ? WHERE engine = ? AND state <> 'over'

-- name: workloads_of_engine
SELECT count(*) FROM workloads WHERE engine = ? AND state <> 'over'

-- name: gc_workloads
DELETE FROM workloads WHERE run = ?

-- name: put_lock
-- Who asks again keeps its place, and what it has.
INSERT INTO locks (name, run, task, engine, held, most, rank, number) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name, run, task) DO UPDATE SET engine = excluded.engine

-- name: locks_of_task
SELECT name, most FROM locks WHERE run = ? AND task = ?

-- name: drop_locks
DELETE FROM locks WHERE run = ? AND task = ? AND engine = ?

-- name: take_locks
UPDATE locks SET held = 1 WHERE run = ? AND task = ?

-- name: locks_in_line
-- The first of those who wait for a name.
SELECT rank, run, number, task, most FROM locks WHERE name = ? AND held = 0 ORDER BY rank, run, number LIMIT ?

-- name: locks_held
SELECT name, count(*) FROM locks WHERE name IN (*) AND held = 1 GROUP BY name

-- name: lock_holders
SELECT name, run, task, engine FROM locks WHERE name IN (*) AND held = 1 ORDER BY name, run, task

-- name: locks_of_engine
SELECT DISTINCT run, task FROM locks WHERE engine = ? AND held = 1

-- name: drop_locks_of
DELETE FROM locks WHERE engine = ?

-- name: gc_locks
DELETE FROM locks WHERE run = ?

-- name: put_tracking
INSERT INTO tracking (run, url, experiment, seq, place, sender, until) VALUES (?, ?, ?, 0, '', '', 0)

-- name: tracking
SELECT run, url, experiment, seq, place, sender, until FROM tracking WHERE run = ?

-- name: tracking_behind
SELECT t.run, t.url, t.experiment, t.seq, t.place, t.sender, t.until FROM tracking t JOIN runs r ON r.number = t.run
WHERE t.seq < r.seq ORDER BY t.run

-- name: take_tracking
UPDATE tracking SET sender = ?, until = ? WHERE run = ? AND sender = ?

-- name: move_tracking
UPDATE tracking SET seq = ?, place = ?, until = ? WHERE run = ? AND sender = ?

-- name: free_tracking
UPDATE tracking SET sender = '', until = 0 WHERE run = ? AND sender = ?

-- name: gc_tracking
DELETE FROM tracking WHERE run = ?

-- Pages of runs: a query for each choice of filters, because each has an index that gives its rows in order. `number >` is what `since`
-- comes to; see first_since.
-- name: runs_page
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE number < ? AND number > ? AND created >= ? ORDER BY number DESC LIMIT ?

-- name: runs_page_of_workflow
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE workflow = ? AND number < ? AND number > ? AND created >= ? ORDER BY number DESC LIMIT ?

-- name: runs_page_of_user
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE username = ? AND number < ? AND number > ? AND created >= ? ORDER BY number DESC LIMIT ?

-- name: runs_page_of_state
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE state = ? AND number < ? AND number > ? AND created >= ? ORDER BY number DESC LIMIT ?

-- name: runs_page_of_workflow_user
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE workflow = ? AND username = ? AND number < ? AND number > ? AND created >= ? ORDER BY number DESC LIMIT ?

-- name: runs_page_of_workflow_state
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE workflow = ? AND state = ? AND number < ? AND number > ? AND created >= ? ORDER BY number DESC LIMIT ?

-- name: runs_page_of_user_state
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE username = ? AND state = ? AND number < ? AND number > ? AND created >= ? ORDER BY number DESC LIMIT ?

-- name: runs_page_of_workflow_user_state
SELECT number, id, workflow, digest, state, created, ended, seq, engine, username, counts, params, options, outputs, error, invalid
FROM runs WHERE workflow = ? AND username = ? AND state = ? AND number < ? AND number > ? AND created >= ? ORDER BY number DESC LIMIT ?

-- name: run_numbers_in
SELECT number FROM runs WHERE state = ?

-- name: first_since
-- Numbers and times rise together, but for clocks that differ: whoever asks allows for that.
SELECT number FROM runs WHERE created < ? ORDER BY created DESC LIMIT 1

-- name: tasks_page
SELECT task, step, state, attempt, key, started, ended, info
FROM tasks WHERE run = ? AND task > ? AND (CAST(? AS TEXT) IS NULL OR step = ?) AND (CAST(? AS TEXT) IS NULL OR state = ?)
ORDER BY task LIMIT ?

-- name: put_order
INSERT INTO work_orders (run, verb, data, at) VALUES (?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET verb = excluded.verb, data = excluded.data, at = excluded.at

-- name: turn_order
-- Only as it was seen: somebody may have asked for something else meanwhile.
UPDATE work_orders SET verb = ?, data = ? WHERE run = ? AND verb = ? AND at = ?

-- name: drop_order
DELETE FROM work_orders WHERE run = ? AND verb = ? AND at = ?

-- name: order_of
SELECT run, verb, data, at FROM work_orders WHERE run = ?

-- name: gc_orders
DELETE FROM work_orders WHERE run = ?

-- name: submission
SELECT digest, run FROM submissions WHERE person = ? AND key = ?

-- name: put_submission
INSERT INTO submissions (person, key, digest, run, at) VALUES (?, ?, ?, ?, ?)

-- name: gc_submissions
DELETE FROM submissions WHERE run = ?

-- name: put_token
INSERT INTO tokens (id, digest, person, role, note, created, expires, revoked, groups, scopes)
VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)

-- name: token
SELECT id, digest, person, role, note, created, expires, revoked, groups, scopes
FROM tokens WHERE id = ?

-- name: tokens
SELECT id, digest, person, role, note, created, expires, revoked, groups, scopes
FROM tokens ORDER BY created, id

-- name: revoke_token
UPDATE tokens SET revoked = ? WHERE id = ? AND revoked IS NULL

-- name: put_sign_in
INSERT INTO sign_ins (id, until) VALUES (?, ?) ON CONFLICT (id) DO NOTHING

-- name: drop_sign_ins
DELETE FROM sign_ins WHERE until < ?

-- name: put_audit
INSERT INTO audit (at, person, token, verb, target, status) VALUES (?, ?, ?, ?, ?, ?)

-- name: audit
SELECT number, at, person, token, verb, target, status FROM audit WHERE number < ? ORDER BY number DESC LIMIT ?

-- name: put_queue_use
INSERT INTO queue_series (queue, width, at, document) VALUES (?, ?, ?, ?)
ON CONFLICT (queue, width, at) DO UPDATE SET document = excluded.document

-- name: queue_use_at
SELECT queue, document FROM queue_series WHERE width = ? AND at = ?

-- name: queue_use
SELECT width, at, document FROM queue_series WHERE queue = ? AND at >= ? AND at < ? ORDER BY at, width

-- name: queue_use_before
SELECT width, at, document FROM queue_series WHERE queue = ? AND at < ? ORDER BY at DESC LIMIT 1

-- name: queue_use_older
SELECT queue, at, document FROM queue_series WHERE width = ? AND at < ? ORDER BY at, queue LIMIT ?

-- name: drop_queue_use
DELETE FROM queue_series WHERE queue = ? AND width = ? AND at = ?

-- name: drop_old_queue_use
DELETE FROM queue_series WHERE width = ? AND at < ?

-- name: put_run_usage
INSERT INTO run_usage (run, seq, created, ended, username, workflow, document) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, ended = excluded.ended, document = excluded.document

-- name: run_usage
SELECT run, seq, created, ended, username, workflow, document FROM run_usage WHERE created < ? AND (ended IS NULL OR ended >= ?) ORDER BY run

-- name: runs_to_count
-- Runs whose usage is not known, or not up to their last event.
SELECT r.number FROM runs r LEFT JOIN run_usage u ON u.run = r.number
WHERE r.created < ? AND (r.ended IS NULL OR r.ended >= ?) AND (u.seq IS NULL OR u.seq <> r.seq) ORDER BY r.number

-- name: gc_run_usage
-- Of runs that were removed, once they are old.
DELETE FROM run_usage WHERE ended < ? AND run NOT IN (SELECT number FROM runs)

-- name: flows
SELECT workflow, count(*), max(number) FROM runs WHERE workflow > ? AND workflow LIKE ? GROUP BY workflow ORDER BY workflow LIMIT ?

-- name: runs_of_flow
SELECT count(*) FROM runs WHERE workflow = ?

-- name: audit_of
SELECT number, at, person, token, verb, target, status FROM audit WHERE person = ? AND number < ?
ORDER BY number DESC LIMIT ?

-- name: outbox_due
SELECT number, run, seq, kind, data, state, attempts, next_at, key, error, sender, until, at
FROM outbox WHERE kind = ? AND state = 'new' AND next_at <= ? ORDER BY next_at, number LIMIT ?

-- name: take_outbox
UPDATE outbox SET sender = ?, until = ? WHERE number = ? AND state = 'new' AND sender = ? AND until = ?

-- name: settle_outbox
UPDATE outbox SET state = ?, attempts = ?, error = ?, next_at = ?, sender = '', until = 0 WHERE number = ? AND state = 'new' AND sender = ?

-- name: free_outbox
UPDATE outbox SET sender = '', until = 0 WHERE state = 'new' AND sender = ?

-- name: outbox_next
SELECT min(next_at) FROM outbox WHERE kind = ? AND state = 'new'

-- name: outbox_of
SELECT number, run, seq, kind, data, state, attempts, next_at, key, error, sender, until, at FROM outbox WHERE number = ?

-- name: outbox_of_run
SELECT number, run, seq, kind, data, state, attempts, next_at, key, error, sender, until, at FROM outbox WHERE run = ? ORDER BY number

-- name: outbox_page
SELECT number, run, seq, kind, data, state, attempts, next_at, key, error, sender, until, at
FROM outbox WHERE state IN (*) AND kind = ? AND number < ? ORDER BY number DESC LIMIT ?

-- name: put_origin
INSERT INTO origins (run, root, parent, link, payload, attempt) VALUES (?, ?, ?, ?, ?, ?)

-- name: origin
SELECT run, root, parent, link, payload, attempt FROM origins WHERE run = ?

-- name: origins_of_root
SELECT run, root, parent, link, payload, attempt FROM origins WHERE root = ? ORDER BY run

-- name: origins_of_payload
SELECT run, root, parent, link, payload, attempt FROM origins WHERE payload = ? ORDER BY run

-- name: gc_origin
DELETE FROM origins WHERE run = ?

-- Links of runs. ------------------------------------------------------------------------------------------------------

-- name: links_of_head
SELECT head, name, root, workflow, state, run, ended, seq, why, at FROM links WHERE head = ?

-- name: links_of_root
SELECT head, name, root, workflow, state, run, ended, seq, why, at FROM links WHERE root = ? ORDER BY head, at, name

-- name: links_of_run
SELECT head, name, root, workflow, state, run, ended, seq, why, at FROM links WHERE run = ?

-- name: links_started
SELECT count(*) FROM links WHERE root = ? AND name <> '' AND run > 0

-- name: put_link
INSERT INTO links (head, name, root, workflow, state, run, ended, seq, why, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (head, name) DO UPDATE SET state = excluded.state, run = excluded.run, ended = excluded.ended, seq = excluded.seq,
    why = excluded.why, at = excluded.at

-- name: drop_link
DELETE FROM links WHERE head = ? AND name = ?

-- name: gc_links
-- Once no run is left that followed from the first one.
DELETE FROM links WHERE NOT EXISTS (SELECT 1 FROM origins WHERE origins.root = links.root)

-- name: links_pending
-- Ends of runs of one root that no courier has looked at.
SELECT outbox.number FROM outbox, origins WHERE outbox.kind = 'link' AND outbox.state = 'new' AND origins.run = outbox.run AND origins.root = ? LIMIT 1

-- Payloads. A payload and its newest run are always read together.
-- name: payload
SELECT p.id, p.workflow, p.label, p.version, p.run, p.attempts, p.created, p.invalid_after,
    r.id, r.state, r.invalid, r.ended, r.username, r.error
FROM payloads p LEFT JOIN runs r ON r.number = p.run WHERE p.id = ?

-- name: put_payload
INSERT INTO payloads (id, workflow, label, version, run, attempts, created, invalid_after) VALUES (?, ?, ?, ?, ?, ?, ?, NULL)
ON CONFLICT (id) DO UPDATE SET label = excluded.label, version = excluded.version, run = excluded.run, attempts = excluded.attempts,
    invalid_after = NULL

-- name: invalidate_payload
UPDATE payloads SET invalid_after = ? WHERE id = ?

-- name: put_payload_event
INSERT INTO payload_events (payload, seq, at, kind, data)
SELECT ?, coalesce(max(seq), 0) + 1, ?, ?, ? FROM payload_events WHERE payload = ?

-- name: payload_events
SELECT seq, at, kind, data FROM payload_events WHERE payload = ? ORDER BY seq

-- name: payloads_page
-- By the number of their newest run, which is what changes last.
SELECT p.id, p.workflow, p.label, p.version, p.run, p.attempts, p.created, p.invalid_after,
    r.id, r.state, r.invalid, r.ended, r.username, r.error
FROM payloads p JOIN runs r ON r.number = p.run
WHERE p.run < ? AND (CAST(? AS TEXT) IS NULL OR p.workflow = ?)
    AND (CAST(? AS TEXT) IS NULL OR (r.state = ? AND r.invalid = ?)) AND coalesce(r.ended, r.created) >= ?
    AND substr(r.error, 1, 64) >= ? AND substr(r.error, 1, 64) < ?
ORDER BY p.run DESC LIMIT ?

-- name: payloads_ended
-- Of one workflow and state: the index `runs_by_error` finds them.
SELECT p.id, p.workflow, p.label, p.version, p.run, p.attempts, p.created, p.invalid_after,
    r.id, r.state, r.invalid, r.ended, r.username, r.error
FROM runs r JOIN payloads p ON p.run = r.number
WHERE r.workflow = ? AND r.state = ? AND r.invalid = ? AND r.ended >= ?
    AND substr(r.error, 1, 64) >= ? AND substr(r.error, 1, 64) < ? AND r.number < ?
ORDER BY r.number DESC LIMIT ?

-- name: runs_ended_of
-- What can be driven again: of a payload only its newest attempt.
SELECT r.number, r.id, r.workflow, r.ended, r.username, r.error, coalesce(o.payload, '')
FROM runs r LEFT JOIN origins o ON o.run = r.number LEFT JOIN payloads p ON p.id = o.payload
WHERE r.workflow = ? AND r.state = ? AND r.invalid = ? AND r.ended >= ?
    AND substr(r.error, 1, 64) >= ? AND substr(r.error, 1, 64) < ? AND (p.id IS NULL OR p.run = r.number)
ORDER BY r.number

-- name: runs_ended
SELECT r.number, r.id, r.workflow, r.ended, r.username, r.error, coalesce(o.payload, '')
FROM runs r LEFT JOIN origins o ON o.run = r.number LEFT JOIN payloads p ON p.id = o.payload
WHERE r.state = ? AND r.invalid = ? AND r.ended >= ?
    AND substr(r.error, 1, 64) >= ? AND substr(r.error, 1, 64) < ? AND (p.id IS NULL OR p.run = r.number)
ORDER BY r.number

-- name: gc_payload_events
DELETE FROM payload_events WHERE payload IN (SELECT id FROM payloads WHERE run = ?)

-- name: gc_payload
DELETE FROM payloads WHERE run = ?

-- Callbacks: what is delivered of the outbox, and every try. ----------------------------------------------------------

-- name: put_delivery
-- Once: another courier may have recorded the same attempt.
INSERT INTO deliveries (outbox, attempt, at, status, error, seconds) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: deliveries_of
SELECT outbox, attempt, at, status, error, seconds FROM deliveries WHERE outbox = ? ORDER BY attempt

-- name: outbox_anew
-- A row that is dead or done is tried once more, by somebody's wish: with all its attempts before it.
UPDATE outbox SET state = 'new', next_at = ?, data = ?, sender = '', until = 0 WHERE number = ? AND state <> 'new'

-- name: outbox_left
SELECT count(*), min(next_at) FROM outbox WHERE run = ? AND kind = ? AND state = 'new'

-- name: gc_deliveries
DELETE FROM deliveries WHERE outbox IN (SELECT number FROM outbox WHERE run = ? AND state <> 'new')

-- name: outbox_counts
SELECT state, count(*) FROM outbox WHERE kind = ? GROUP BY state

-- Orders, as workers read them. An order that a registered engine is at needs nothing of anybody, and there may be 100,000 of those: they
-- are left out here. `at >` is for looking at what is new alone, by an index.
-- name: orders_to_do
SELECT o.run, o.verb, o.data, o.at FROM work_orders o LEFT JOIN runs r ON r.number = o.run LEFT JOIN engines e ON e.id = r.engine
WHERE o.at > ? AND (o.verb <> 'run' OR e.id IS NULL OR r.state IN ('succeeded', 'failed', 'cancelled')) ORDER BY o.at, o.run

-- name: orders_owned
SELECT o.run, o.verb, o.data, o.at FROM work_orders o JOIN runs r ON r.number = o.run WHERE r.engine = ? ORDER BY o.run

-- name: ordered
SELECT run FROM work_orders

-- name: order_count
SELECT count(*) FROM work_orders

-- name: outbox_runs_left
SELECT DISTINCT run FROM outbox WHERE kind = ? AND state = 'new'

-- Schedules.

-- name: put_schedule
INSERT INTO schedules (name, state, next_at, waiting, last_at, version, owner, workflow, digest, document, note, created)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING

-- name: change_schedule
UPDATE schedules SET state = ?, next_at = ?, waiting = ?, last_at = ?, version = ?, owner = ?, workflow = ?, digest = ?, document = ?,
note = ?, created = ? WHERE name = ? AND version = ?

-- name: drop_schedule
DELETE FROM schedules WHERE name = ? AND version = ?

-- name: drop_schedule_runs
DELETE FROM schedule_runs WHERE schedule = ?

-- name: schedule
SELECT name, state, next_at, waiting, last_at, version, owner, workflow, digest, document, note, created FROM schedules WHERE name = ?

-- name: schedules_page
SELECT name, state, next_at, waiting, last_at, version, owner, workflow, digest, document, note, created
FROM schedules WHERE name > ? ORDER BY name LIMIT ?

-- name: schedules_due
SELECT name, state, next_at, waiting, last_at, version, owner, workflow, digest, document, note, created
FROM schedules WHERE state = 'active' AND next_at <= ? AND waiting IS NULL ORDER BY next_at, name LIMIT ?

-- name: schedules_waiting
SELECT name, state, next_at, waiting, last_at, version, owner, workflow, digest, document, note, created
FROM schedules WHERE waiting > 0 ORDER BY waiting, name LIMIT ?

-- name: schedules_next
SELECT min(next_at) FROM schedules WHERE state = 'active' AND next_at > 0 AND waiting IS NULL

-- name: put_schedule_run
-- That a time has one run follows from the version of the schedule. It may have one already if the schedule was added anew, and the clock set back.
INSERT INTO schedule_runs (schedule, due, run) VALUES (?, ?, ?) ON CONFLICT (schedule, due) DO UPDATE SET run = excluded.run

-- name: schedule_runs
SELECT s.due, s.run, r.id, r.state FROM schedule_runs s JOIN runs r ON r.number = s.run WHERE s.schedule = ? ORDER BY s.due DESC LIMIT ?

-- name: gc_schedule_runs
DELETE FROM schedule_runs WHERE run = ?

-- name: text_of_schedules
SELECT name, document FROM schedules WHERE name > ? AND document LIKE ? ORDER BY name LIMIT ?

-- Answers from outside.

-- name: put_answer
INSERT INTO answers (digest, run, task, attempt) VALUES (?, ?, ?, ?) ON CONFLICT (digest) DO NOTHING

-- name: await_answer
UPDATE answers SET until = ?, heartbeat = ?, beat = ? WHERE run = ? AND task = ? AND attempt = ? AND state = 'open'

-- name: answer
SELECT digest, run, task, attempt, state, until, heartbeat, beat, at, data FROM answers WHERE digest = ?

-- name: answer_of
SELECT digest, run, task, attempt, state, until, heartbeat, beat, at, data FROM answers WHERE run = ? AND task = ? AND attempt = ?

-- name: give_answer
UPDATE answers SET state = 'answered', data = ?, at = ? WHERE digest = ? AND state = 'open'

-- name: beat_answer
UPDATE answers SET beat = ? WHERE digest = ? AND state = 'open'

-- name: expire_answer
UPDATE answers SET state = 'expired', at = ? WHERE digest = ? AND state = 'open' AND beat = ?

-- name: gc_answers
DELETE FROM answers WHERE run = ?

-- name: add_meta
INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING

-- name: put_payload_wait
INSERT INTO payload_waits (payload, run, task, attempt) VALUES (?, ?, ?, ?) ON CONFLICT (payload, run, task, attempt) DO NOTHING

-- name: payload_waiters
SELECT run, task, attempt FROM payload_waits WHERE payload = ? ORDER BY run, task, attempt

-- name: waited_payloads
SELECT payload FROM payload_waits WHERE run = ? AND task = ? AND attempt = ? ORDER BY payload

-- name: drop_payload_waits
DELETE FROM payload_waits WHERE run = ? AND task = ? AND attempt = ?

-- name: gc_payload_waits
DELETE FROM payload_waits WHERE run = ?
