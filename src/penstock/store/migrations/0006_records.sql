-- What has been, kept small.

-- How queues were used: a row for each span of time in which something changed in a queue; what has no row was as the row before it ends.
-- Spans of `width` seconds begin at `at`. See series.py, which also says how long they are kept.
CREATE TABLE queue_series (
    queue TEXT NOT NULL,
    width BIGINT NOT NULL,
    at BIGINT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (queue, width, at)
) $WITHOUT_ROWID;
CREATE INDEX queue_series_by_age ON queue_series (width, at);

-- What the tasks of a run asked for and used, worked out from its log up to `seq` when somebody wanted to know. The log is right; this is
-- there so that it need not be read again, and stays when the run is removed.
CREATE TABLE run_usage (
    run BIGINT PRIMARY KEY,
    seq BIGINT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    ended DOUBLE PRECISION,
    username TEXT NOT NULL,
    workflow TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX run_usage_by_end ON run_usage (ended);
