-- What follows from the end of a run: where runs come from, and what is to be sent.

-- What a run failed with: its first error, `TimeoutError: timed out after 60 s`. Empty if it has not failed.
ALTER TABLE runs ADD COLUMN error TEXT NOT NULL DEFAULT '';
CREATE INDEX runs_by_end ON runs (workflow, state, ended);

-- Which run a run follows from, and what it works on. Only runs that have either have a row. `root`: the run that it all began with,
-- `parent`: the run whose end made this one, 0 if there is none; `link`: the place in the chain, as in `1.0`. `payload`: see payloads; empty
-- if there is none. `attempt`: of that payload, from 1.
CREATE TABLE origins (
    run BIGINT PRIMARY KEY,
    root BIGINT NOT NULL,
    parent BIGINT NOT NULL,
    link TEXT NOT NULL,
    payload TEXT NOT NULL,
    attempt BIGINT NOT NULL
);
CREATE INDEX origins_by_root ON origins (root, run);
CREATE INDEX origins_by_payload ON origins (payload, run);

-- The outbox is what a courier works through. `key`: the same for every try to deliver the row, and of no other row. `sender` works on it
-- until `until`; then another may take it. `state`: new, done, dead (given up). `at`: when it was written.
ALTER TABLE outbox ADD COLUMN key TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN error TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN sender TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN until DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN at DOUBLE PRECISION NOT NULL DEFAULT 0;
CREATE INDEX outbox_by_run ON outbox (run, number);
CREATE INDEX outbox_due ON outbox (kind, state, next_at);
