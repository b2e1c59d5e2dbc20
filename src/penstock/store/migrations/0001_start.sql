-- The first schema, for both databases. Run by migrate.py, one statement at a time, all in one transaction.
-- Words with a dollar sign are filled in by the driver: see `ddl` in sqlite.py and postgres.py.
-- Small columns stand first, so that a scan over many rows does not have to read the long texts behind them.

-- What the store says about itself: the version of its schema, and its own id.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Numbers that are given out once and never again, not even after a clean-up. Taking one locks its row until the commit,
-- so numbers become visible in their order.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);

CREATE TABLE workflows (
    digest TEXT PRIMARY KEY,
    document TEXT NOT NULL
);

CREATE TABLE runs (
    number BIGINT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    workflow TEXT NOT NULL,
    digest TEXT NOT NULL,
    state TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    ended DOUBLE PRECISION,
    seq BIGINT NOT NULL,
    engine TEXT,
    username TEXT NOT NULL,
    counts TEXT NOT NULL,
    params TEXT NOT NULL,
    options TEXT NOT NULL,
    outputs TEXT
);
CREATE INDEX runs_by_state ON runs (state, number);
CREATE INDEX runs_by_workflow ON runs (workflow, number);
CREATE INDEX runs_by_digest ON runs (digest);

CREATE TABLE events (
    run BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    task TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run, seq)
) $WITHOUT_ROWID;

CREATE TABLE tasks (
    run BIGINT NOT NULL,
    task TEXT NOT NULL,
    step TEXT NOT NULL,
    state TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    key TEXT NOT NULL,
    started DOUBLE PRECISION,
    ended DOUBLE PRECISION,
    info TEXT NOT NULL,
    PRIMARY KEY (run, task)
) $WITHOUT_ROWID;

CREATE TABLE results (
    key TEXT PRIMARY KEY,
    outputs TEXT NOT NULL,
    run BIGINT NOT NULL,
    task TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL
) $WITHOUT_ROWID;

-- Who computes a key now.
CREATE TABLE leases (
    key TEXT PRIMARY KEY,
    engine TEXT NOT NULL,
    run BIGINT NOT NULL,
    task TEXT NOT NULL
) $WITHOUT_ROWID;

-- Who waits for a key that another engine computes; `engine` is the one that waits.
CREATE TABLE waiters (
    key TEXT NOT NULL,
    run BIGINT NOT NULL,
    task TEXT NOT NULL,
    engine TEXT NOT NULL,
    failure TEXT,
    PRIMARY KEY (key, run, task)
);
CREATE INDEX waiters_by_engine ON waiters (engine);

CREATE TABLE engines (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    born TEXT NOT NULL,
    beat BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL
);

-- What the owner of a run is asked to do: cancel, resume a suspended step …
CREATE TABLE requests (
    number BIGINT PRIMARY KEY,
    run BIGINT NOT NULL,
    verb TEXT NOT NULL,
    data TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL
);

-- What somebody outside must be told. Written in the transaction of the event it tells about.
CREATE TABLE outbox (
    number $SERIAL,
    run BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'new',
    attempts BIGINT NOT NULL DEFAULT 0,
    next_at DOUBLE PRECISION NOT NULL DEFAULT 0
);
CREATE INDEX outbox_by_state ON outbox (state, next_at);
