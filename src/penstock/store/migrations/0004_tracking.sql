-- Runs that a tracking server is told of. What is still to be told is what the log has after `seq`: nothing is written for it while the
-- run goes on. `place` is where the server has the run. Who tells it takes the row first (`sender`, as liveness.py writes it, until a time
-- that it moves on), so that no two do it at once.
CREATE TABLE tracking (
    run BIGINT PRIMARY KEY,
    url TEXT NOT NULL,
    experiment TEXT NOT NULL,
    seq BIGINT NOT NULL,
    place TEXT NOT NULL,
    sender TEXT NOT NULL,
    until DOUBLE PRECISION NOT NULL
);
