CREATE UNIQUE INDEX answers_by_attempt ON answers (run, task, attempt);
CREATE INDEX audit_by_person ON audit (person, number);
CREATE INDEX links_by_root ON links (root, head);
CREATE INDEX links_by_run ON links (run);
CREATE INDEX locks_by_engine ON locks (engine, held);
CREATE INDEX locks_by_task ON locks (run, task);
CREATE INDEX locks_in_line ON locks (name, held, rank, run, number);
CREATE INDEX origins_by_payload ON origins (payload, run);
CREATE INDEX origins_by_root ON origins (root, run);
CREATE INDEX outbox_by_run ON outbox (run, number);
CREATE INDEX outbox_by_state ON outbox (state, next_at);
CREATE INDEX outbox_due ON outbox (kind, state, next_at);
CREATE INDEX payload_waits_by_run ON payload_waits (run, task, attempt);
CREATE INDEX payloads_by_run ON payloads (run);
CREATE INDEX queue_series_by_age ON queue_series (width, at);
CREATE INDEX run_usage_by_end ON run_usage (ended);
CREATE INDEX runs_by_all ON runs (workflow, username, state, number);
CREATE INDEX runs_by_created ON runs (created);
CREATE INDEX runs_by_digest ON runs (digest);
CREATE INDEX runs_by_end ON runs (workflow, state, ended);
CREATE INDEX runs_by_error ON runs (workflow, state, substr(error, 1, 64), ended);
CREATE INDEX runs_by_state ON runs (state, number);
CREATE INDEX runs_by_user ON runs (username, number);
CREATE INDEX runs_by_user_state ON runs (username, state, number);
CREATE INDEX runs_by_workflow ON runs (workflow, number);
CREATE INDEX runs_by_workflow_state ON runs (workflow, state, number);
CREATE INDEX runs_by_workflow_user ON runs (workflow, username, number);
CREATE INDEX schedule_runs_by_run ON schedule_runs (run);
CREATE INDEX schedules_by_digest ON schedules (digest);
CREATE INDEX schedules_due ON schedules (state, next_at);
CREATE INDEX schedules_waiting ON schedules (waiting);
CREATE INDEX submissions_by_run ON submissions (run);
CREATE INDEX waiters_by_engine ON waiters (engine);
CREATE INDEX work_orders_by_time ON work_orders (at);
CREATE INDEX workloads_by_engine ON workloads (engine);
CREATE INDEX workloads_by_run ON workloads (run);
CREATE INDEX workloads_by_version ON workloads (version);
CREATE TABLE answers (
    digest TEXT PRIMARY KEY,
    run BIGINT NOT NULL,
    task TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    state TEXT NOT NULL DEFAULT 'open',
    until DOUBLE PRECISION NOT NULL DEFAULT 0,
    heartbeat DOUBLE PRECISION NOT NULL DEFAULT 0,
    beat DOUBLE PRECISION NOT NULL DEFAULT 0,
    at DOUBLE PRECISION NOT NULL DEFAULT 0,
    data TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at DOUBLE PRECISION NOT NULL,
    person TEXT NOT NULL,
    token TEXT NOT NULL,
    verb TEXT NOT NULL,
    target TEXT NOT NULL,
    status BIGINT NOT NULL
);
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
CREATE TABLE deliveries (
    outbox BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    status BIGINT NOT NULL,
    error TEXT NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (outbox, attempt)
);
CREATE TABLE engines (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    born TEXT NOT NULL,
    beat BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL
);
CREATE TABLE events (
    run BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    task TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE leases (
    key TEXT PRIMARY KEY,
    engine TEXT NOT NULL,
    run BIGINT NOT NULL,
    task TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE links (
    head BIGINT NOT NULL,
    name TEXT NOT NULL,
    root BIGINT NOT NULL,
    workflow TEXT NOT NULL,
    state TEXT NOT NULL,
    run BIGINT NOT NULL,
    ended TEXT NOT NULL,
    seq BIGINT NOT NULL,
    why TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (head, name)
);
CREATE TABLE locks (
    name TEXT NOT NULL,
    run BIGINT NOT NULL,
    task TEXT NOT NULL,
    engine TEXT NOT NULL,
    held BIGINT NOT NULL,
    most BIGINT NOT NULL,
    rank BIGINT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (name, run, task)
);
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
CREATE TABLE origins (
    run BIGINT PRIMARY KEY,
    root BIGINT NOT NULL,
    parent BIGINT NOT NULL,
    link TEXT NOT NULL,
    payload TEXT NOT NULL,
    attempt BIGINT NOT NULL
);
CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    run BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'new',
    attempts BIGINT NOT NULL DEFAULT 0,
    next_at DOUBLE PRECISION NOT NULL DEFAULT 0
, key TEXT NOT NULL DEFAULT '', error TEXT NOT NULL DEFAULT '', sender TEXT NOT NULL DEFAULT '', until DOUBLE PRECISION NOT NULL DEFAULT 0, at DOUBLE PRECISION NOT NULL DEFAULT 0);
CREATE TABLE payload_events (
    payload TEXT NOT NULL,
    seq BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (payload, seq)
) WITHOUT ROWID;
CREATE TABLE payload_waits (
    payload TEXT NOT NULL,
    run BIGINT NOT NULL,
    task TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    PRIMARY KEY (payload, run, task, attempt)
) WITHOUT ROWID;
CREATE TABLE payloads (
    id TEXT PRIMARY KEY,
    workflow TEXT NOT NULL,
    label TEXT NOT NULL,
    version BIGINT NOT NULL,
    run BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    invalid_after DOUBLE PRECISION
) WITHOUT ROWID;
CREATE TABLE queue_objects (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    document TEXT,
    PRIMARY KEY (kind, name)
);
CREATE TABLE queue_series (
    queue TEXT NOT NULL,
    width BIGINT NOT NULL,
    at BIGINT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (queue, width, at)
) WITHOUT ROWID;
CREATE TABLE requests (
    number BIGINT PRIMARY KEY,
    run BIGINT NOT NULL,
    verb TEXT NOT NULL,
    data TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL
);
CREATE TABLE results (
    key TEXT PRIMARY KEY,
    outputs TEXT NOT NULL,
    run BIGINT NOT NULL,
    task TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL
) WITHOUT ROWID;
CREATE TABLE run_usage (
    run BIGINT PRIMARY KEY,
    seq BIGINT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    ended DOUBLE PRECISION,
    username TEXT NOT NULL,
    workflow TEXT NOT NULL,
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
, error TEXT NOT NULL DEFAULT '', invalid BIGINT NOT NULL DEFAULT 0);
CREATE TABLE schedule_runs (
    schedule TEXT NOT NULL,
    due DOUBLE PRECISION NOT NULL,
    run BIGINT NOT NULL,
    PRIMARY KEY (schedule, due)
);
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
CREATE TABLE sign_ins (
    id TEXT PRIMARY KEY,
    until DOUBLE PRECISION NOT NULL
);
CREATE TABLE sqlite_sequence(name,seq);
CREATE TABLE submissions (
    person TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    run BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (person, key)
);
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
) WITHOUT ROWID;
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    person TEXT NOT NULL,
    role TEXT NOT NULL,
    note TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    expires DOUBLE PRECISION,
    revoked DOUBLE PRECISION
, groups TEXT NOT NULL DEFAULT '[]', scopes TEXT NOT NULL DEFAULT '[]');
CREATE TABLE tracking (
    run BIGINT PRIMARY KEY,
    url TEXT NOT NULL,
    experiment TEXT NOT NULL,
    seq BIGINT NOT NULL,
    place TEXT NOT NULL,
    sender TEXT NOT NULL,
    until DOUBLE PRECISION NOT NULL
);
CREATE TABLE waiters (
    key TEXT NOT NULL,
    run BIGINT NOT NULL,
    task TEXT NOT NULL,
    engine TEXT NOT NULL,
    failure TEXT,
    PRIMARY KEY (key, run, task)
);
CREATE TABLE work_orders (
    run BIGINT PRIMARY KEY,
    verb TEXT NOT NULL,
    data TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL
);
CREATE TABLE workflows (
    digest TEXT PRIMARY KEY,
    document TEXT NOT NULL
);
CREATE TABLE workloads (
    key TEXT PRIMARY KEY,
    version BIGINT NOT NULL,
    run BIGINT NOT NULL,
    engine TEXT NOT NULL,
    state TEXT NOT NULL,
    document TEXT NOT NULL
);
-- version 14
