-- Every try to deliver a row of the outbox that was recorded. `outbox`: its number. `status`: of the answer; 0 if there was none. `error`:
-- empty if it was a success. `seconds`: until the answer was there.
CREATE TABLE deliveries (
    outbox BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    status BIGINT NOT NULL,
    error TEXT NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (outbox, attempt)
);
