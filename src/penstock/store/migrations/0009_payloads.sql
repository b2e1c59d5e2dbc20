-- Payloads: what identifies the work that a run does.

-- Did it fail because its input is not valid? Then the same input is not tried again.
ALTER TABLE runs ADD COLUMN invalid BIGINT NOT NULL DEFAULT 0;
-- What failed with which error since when. Only the beginning of an error is in it: an index takes no long texts.
CREATE INDEX runs_by_error ON runs (workflow, state, substr(error, 1, 64), ended);

-- One row for each payload of a workflow, found by its identity. `run`: its newest attempt; the state of the payload is that of this run.
-- `attempts`: how many there have been. `version`: with which the newest was made. `invalid_after`: what came of it does not count after this
-- time; 0: it does not count any more.
CREATE TABLE payloads (
    id TEXT PRIMARY KEY,
    workflow TEXT NOT NULL,
    label TEXT NOT NULL,
    version BIGINT NOT NULL,
    run BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    invalid_after DOUBLE PRECISION
) $WITHOUT_ROWID;
CREATE INDEX payloads_by_run ON payloads (run);

-- What happened to a payload outside of its runs, in order: submitted, invalidated.
CREATE TABLE payload_events (
    payload TEXT NOT NULL,
    seq BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (payload, seq)
) $WITHOUT_ROWID;
