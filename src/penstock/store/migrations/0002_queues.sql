-- Queues, and what stands in them. Whoever decides about admission takes the next number of the counter `admission` first, which
-- locks it until the commit: decisions are made one after the other, each on what the last one left. Everything that it writes
-- carries that number, so that others can read what is new to them.

-- What an administrator has configured: Kueue's objects as documents.
CREATE TABLE queue_objects (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    document TEXT,
    PRIMARY KEY (kind, name)
);

-- What the runs hold, and what they wait for.
CREATE TABLE workloads (
    key TEXT PRIMARY KEY,
    version BIGINT NOT NULL,
    run BIGINT NOT NULL,
    engine TEXT NOT NULL,
    state TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX workloads_by_version ON workloads (version);
CREATE INDEX workloads_by_run ON workloads (run);
CREATE INDEX workloads_by_engine ON workloads (engine);
