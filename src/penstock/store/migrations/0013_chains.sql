-- The links of runs, as they were decided: each makes one run at most.

-- `head`: the run whose workflow has the link; `name`: of the link in it. The row of the head itself has the name "". `root`: see origins. `workflow`:
-- what the link runs. `state`: started, skipped (its condition did not hold), omitted (what it comes after ended otherwise), dead (it could not be
-- started). `run`: what it started, 0 if nothing. `ended`: how that ended, `seq`: with which event; of a link that is omitted: what it was omitted
-- for. `why`: it was not started.
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
CREATE INDEX links_by_root ON links (root, head);
CREATE INDEX links_by_run ON links (run);
