-- Workflows that are run by the clock. See schedules.py.

-- `document`: when, what with, and which policies. `digest`: of the workflow as it was when the schedule was made. `state`: active, paused, over
-- (it has no further time). `next_at`: the time that is due next; `waiting`: one that is due, and waits for the run before it. Whoever moves
-- them counts `version` up, in the transaction that records the run: so each time is acted on once. `last_at`: the time that a run was made for last.
-- `note`: why it last made no run.
CREATE TABLE schedules (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    next_at DOUBLE PRECISION,
    waiting DOUBLE PRECISION,
    last_at DOUBLE PRECISION,
    version BIGINT NOT NULL,
    owner TEXT NOT NULL,
    workflow TEXT NOT NULL,
    digest TEXT NOT NULL,
    document TEXT NOT NULL,
    note TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL
);
CREATE INDEX schedules_due ON schedules (state, next_at);
CREATE INDEX schedules_waiting ON schedules (waiting);
CREATE INDEX schedules_by_digest ON schedules (digest);

-- Which run was made for which time.
CREATE TABLE schedule_runs (
    schedule TEXT NOT NULL,
    due DOUBLE PRECISION NOT NULL,
    run BIGINT NOT NULL,
    PRIMARY KEY (schedule, due)
);
CREATE INDEX schedule_runs_by_run ON schedule_runs (run);
