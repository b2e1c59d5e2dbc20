-- What runs and tasks hold so that others have to wait, and who waits for it. Whoever asks or lets go takes the next number of the
-- counter `locks` first, which locks it until the commit: locks are handed out one decision after the other, each on what the last
-- one left.
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
CREATE INDEX locks_in_line ON locks (name, held, rank, run, number);
CREATE INDEX locks_by_task ON locks (run, task);
CREATE INDEX locks_by_engine ON locks (engine, held);
