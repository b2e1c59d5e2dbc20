-- Tokens with which somebody outside answers an attempt of a step. Only the digest of a token is kept.
-- `state`: open, answered, expired. `until`: when it is too late, 0: never, or the attempt does not wait yet; `heartbeat`: seconds between two
-- signs of life, 0: none are asked for; `beat`: when the last one came. `data`: the answer. `at`: when it came.
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
CREATE UNIQUE INDEX answers_by_attempt ON answers (run, task, attempt);

-- Which payloads an attempt waits for.
CREATE TABLE payload_waits (
    payload TEXT NOT NULL,
    run BIGINT NOT NULL,
    task TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    PRIMARY KEY (payload, run, task, attempt)
) $WITHOUT_ROWID;
CREATE INDEX payload_waits_by_run ON payload_waits (run, task, attempt);
