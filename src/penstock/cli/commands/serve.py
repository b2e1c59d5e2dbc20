"""Commands of a team's server: serve, worker, token."""

from __future__ import annotations

import click

from penstock.cli.commands import options


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option("--name", "names", multiple=True, metavar="NAME", help="Another name of this server, as browsers see it.")
@click.option("--open", "browser", is_flag=True, help="Open the pages in the browser.")
@click.option("--no-worker", is_flag=True, help="Execute nothing here: penstock worker does.")
@click.option("--no-token", is_flag=True, help="Print no address with a token; those of penstock token create count.")
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Believe X-Forwarded-For and -Proto from there: 10.0.0.7, 10.0.0.0/8.",
)
@click.option("--sign-in", metavar="FILE", help="Let people sign in at an OpenID provider, as this file says.")
@click.option("--cluster", metavar="CONTEXT", help="Show the queues of this cluster of the kubeconfig, too.")
@options.jobs
@options.quiet
def serve(
    host: str,
    port: int,
    names: tuple[str, ...],
    browser: bool,
    no_worker: bool,
    no_token: bool,
    proxies: tuple[str, ...],
    sign_in: str | None,
    cluster: str | None,
    jobs: int | None,
    quiet: bool,
) -> None:
    """Serve runs and queues over HTTP: pages, and an API at /api/v1.

    It works on the store of the current folder, or on PENSTOCK_STORE. Commands may be used on the same store meanwhile. The address that
    it prints has a token in it, which is good until the server ends; people of a team get tokens of their own: penstock token create.

    It executes what is submitted to it. With --no-worker it does not, and with PENSTOCK_STORE=postgresql://… several servers and several
    `penstock worker` share one store; all need the same PENSTOCK_HOME for logs and PENSTOCK_ARTIFACTS.

    With --cluster, the pages and lists also show what is in the queues of a cluster's Kueue: workflows of Argo and Tekton, JobSets, Jobs and runs, with the
    reason why they wait. CONTEXT is one of the kubeconfig; in-cluster is where the server itself runs. It reads and watches; it changes nothing there.

    Ctrl-C once lets running tasks finish, and their runs go on when a worker is there again; twice ends them now.

    \b
    penstock serve --open
    penstock serve --host 0.0.0.0 --name penstock.example.org --no-token      (behind a proxy that speaks TLS)"""
    from penstock.cli.serving import serve as serve_now
    from penstock.settings import read

    serve_now(
        read(jobs=jobs), host, port, names, browser, not no_worker, not no_token, quiet, sign_in, proxies, cluster
    )


@click.command()
@click.option("--until-idle", is_flag=True, help="End when there is nothing left to do. One of these for each home.")
@options.jobs
@options.quiet
def worker(until_idle: bool, jobs: int | None, quiet: bool) -> None:
    """Execute runs that were submitted to a server, until it is told to end.

    Any number of workers may share a store: a run has one of them at a time, and queues decide what starts. A worker that dies loses
    nothing: the next one goes on with its runs.

    Ctrl-C once lets running tasks finish and leaves the rest to other workers; twice ends them now."""
    from penstock.cli.serving import work, work_until_idle
    from penstock.settings import read

    (work_until_idle if until_idle else work)(read(jobs=jobs), quiet)


@click.group()
def token() -> None:
    """Tokens: who may call a server, and what for.

    \b
    viewer      looks at everything
    submitter   starts runs; ends and retries those of its own
    operator    ends and retries those of everybody; stops queues
    admin       changes queues, gives tokens"""


@token.command()
@click.argument("person")
@click.option(
    "--role", default="submitter", show_default=True, metavar="ROLE", help="viewer, submitter, operator or admin."
)
@click.option("--expires", callback=options.duration, metavar="TIME", help="After 90d, 12h, …  [default: never]")
@click.option("--note", default="", help="What it is for.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="A group of PERSON, for the lists of queues.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="PART",
    help="Only for this part of the API: runs, payloads, queues, cluster, records, verbs, files, people, server, store (what commands with --server read). Pages want a token without scopes.",
)
@options.output
def create(
    person: str,
    role: str,
    expires: float | None,
    note: str,
    groups: tuple[str, ...],
    scopes: tuple[str, ...],
    output: str,
) -> None:
    """Make a token for PERSON and print it. It is shown this once: only a digest is kept.

    Runs that are submitted with it belong to PERSON.

    As JSON: {id, person, role, note, created, expires, groups, scopes, secret}."""
    import time

    from penstock.cli.ui import render
    from penstock.service import stores, tokens
    from penstock.settings import read

    with stores.open_or_create(read()) as store:
        made, text = tokens.create(store, person, role, time.time(), expires, note, groups, scopes)
    data = {name: value for name, value in made._asdict().items() if name not in ("digest", "revoked")}
    render.result(output, {**data, "secret": text}, text)
    if output != "json":
        render.note(f"the token of {person} ({role}); it is not shown again. penstock token revoke {made.id} ends it")


@token.command()
@options.output
def ls(output: str) -> None:
    """List tokens, without their secrets.

    As JSON: a list of {id, person, role, note, created, expires, revoked, groups, scopes}."""
    import time

    from penstock.cli.ui import render
    from penstock.service import stores
    from penstock.settings import read

    with stores.open_or_create(read()) as store:
        found = store.tokens.all()
    if output == "json":
        render.json_out([{name: value for name, value in one._asdict().items() if name != "digest"} for one in found])
        return
    now = time.time()
    rows = [
        [
            one.id,
            render.clean(one.person),
            one.role + (f" ({', '.join(one.scopes)})" if one.scopes else ""),
            render.clean(", ".join(one.groups)),
            "revoked" if one.revoked else "expired" if one.expires and one.expires <= now else "good",
            render.when(one.created, now),
            render.clean(one.note),
        ]
        for one in found
    ]
    if rows or not render.is_terminal():
        render.table(["TOKEN", "PERSON", "ROLE", "GROUPS", "STATE", "MADE", "NOTE"], rows)
    else:
        render.note("there are no tokens; penstock token create NAME makes one")


@token.command()
@click.argument("id", metavar="TOKEN")
def revoke(id: str) -> None:
    """End a token, at once and on every server of the store. TOKEN: its id, as penstock token ls shows it."""
    import time

    from penstock.cli.ui import render
    from penstock.service import stores, tokens
    from penstock.settings import read

    with stores.open_existing(read()) as store:
        tokens.revoke(store, id, time.time())
    render.note("revoked")
