-- What servers and workers need besides.

-- Who may call a server. Only the digest of a token is kept.
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    person TEXT NOT NULL,
    role TEXT NOT NULL,
    note TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    expires DOUBLE PRECISION,
    revoked DOUBLE PRECISION
);

-- What any worker is to do with a run: execute it, retry it, cancel it. Gone when that is done and the run is over.
CREATE TABLE work_orders (
    run BIGINT PRIMARY KEY,
    verb TEXT NOT NULL,
    data TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL
);

-- Submissions that carried a key, so that one which is sent twice makes one run. `digest` is of what was sent.
CREATE TABLE submissions (
    person TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    run BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (person, key)
);
CREATE INDEX submissions_by_run ON submissions (run);

-- Who did what through a server.
CREATE TABLE audit (
    number $SERIAL,
    at DOUBLE PRECISION NOT NULL,
    person TEXT NOT NULL,
    token TEXT NOT NULL,
    verb TEXT NOT NULL,
    target TEXT NOT NULL,
    status BIGINT NOT NULL
);

CREATE INDEX runs_by_user ON runs (username, number);
