-- What people and programs are let do, besides their role.

-- Groups that the lists of queues (ACLs) know, and the parts of the API that the token is for; JSON lists.
ALTER TABLE tokens ADD COLUMN groups TEXT NOT NULL DEFAULT '[]';
ALTER TABLE tokens ADD COLUMN scopes TEXT NOT NULL DEFAULT '[]';

-- Ways through the sign-in that have been taken, each of them once. `until`: then nobody can come with it any more.
CREATE TABLE sign_ins (
    id TEXT PRIMARY KEY,
    until DOUBLE PRECISION NOT NULL
);

CREATE INDEX audit_by_person ON audit (person, number);

-- Lists of runs by any filters, the newest first.
CREATE INDEX runs_by_created ON runs (created);
CREATE INDEX runs_by_workflow_state ON runs (workflow, state, number);
CREATE INDEX runs_by_user_state ON runs (username, state, number);
CREATE INDEX runs_by_workflow_user ON runs (workflow, username, number);
CREATE INDEX runs_by_all ON runs (workflow, username, state, number);
