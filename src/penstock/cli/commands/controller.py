"""The commands about the controller in a cluster: penstock controller manifests, check, run."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.commands import options

ENGINES = ("argo", "tekton", "jobset")

_namespace = click.option(
    "-n", "--namespace", default="penstock-system", show_default=True, help="The controller's own namespace."
)
_without = click.option(
    "--without", multiple=True, type=click.Choice(ENGINES), help="Leave an engine out that the cluster does not have."
)
_also = click.option(
    "--also",
    multiple=True,
    metavar="ENGINE",
    help="An engine of another package, which is installed here and in the image.",
)
_context = click.option("--context", default="", help="The context of the kubeconfig.")


_url = click.option(
    "--url", default="", help="The controller runs out of cluster, and answers webhooks here: https://127.0.0.1:9443."
)


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of this file


@click.group(cls=_Group)
def controller() -> None:
    """The controller in a Kubernetes cluster: workflows of Argo, Tekton and JobSet wait in the queues of Kueue, stage by stage."""


@controller.command()
@_namespace
@click.option("--image", default="", help="The image of the controller, as deploy/Containerfile makes it.")
@click.option(
    "--replicas", type=click.IntRange(1), default=2, show_default=True, help="One acts, the others take over."
)
@_without
@_also
@_url
def manifests(
    namespace: str, image: str, replicas: int, without: tuple[str, ...], also: tuple[str, ...], url: str
) -> None:
    """Print everything that a cluster needs: namespace, rights, policies, Deployment, Service, webhook.

    \b
    penstock controller manifests | kubectl apply -f -
    penstock controller manifests --image registry.example/penstock:1 --without tekton

    With --url there is no Deployment. It can be applied again, also by a newer version. The same is a Helm chart in deploy/chart."""
    from penstock import __version__
    from penstock.cli.ui import render
    from penstock.controller.install.manifests import IMAGE, Install
    from penstock.controller.install.manifests import manifests as all_of
    from penstock.formats.yaml_writer import dump_all

    named = image or f"{IMAGE}:{__version__}"
    install = Install(namespace, named, replicas, _engines(without), _others(also), url.rstrip("/"))
    render.data(dump_all(all_of(install)), end="")
    if not image and not url:
        said = f"the image is {named}, which no registry has by that name: only nodes that have it already can start it"
        render.note(
            f"warning: {said}. Build deploy/Containerfile, push it, and name it: --image registry.example/{named}"
        )


@controller.command()
@_namespace
@_without
@_also
@_context
@_url
@options.output
@click.pass_context
def check(
    ctx: click.Context,
    namespace: str,
    without: tuple[str, ...],
    also: tuple[str, ...],
    context: str,
    url: str,
    output: str,
) -> None:
    """Say what a cluster lacks for the controller, and how to put it right: Kubernetes, Kueue, the engines, and whether everything is installed
    as this version would install it. Asks with kubectl.

    Exit code 1: something is wrong.

    As JSON: {healthy, findings: [{check, state: ok|note|problem, text, fix}]}."""
    from penstock.cli.ui import render
    from penstock.controller.install.check import findings
    from penstock.controller.install.manifests import Install
    from penstock.controller.install.reading import reader

    install = Install(namespace, engines=_engines(without), others=_others(also), url=url.rstrip("/"))
    found = findings(reader(context), install)
    healthy = all(one.state != "problem" for one in found)
    if output == "json":
        from dataclasses import asdict

        render.json_out({"healthy": healthy, "findings": [asdict(one) for one in found]})
    else:
        render.table(["CHECK", "STATE", "FOUND"], [[one.check, one.state, one.text] for one in found])
        for one in found:
            if one.fix:
                render.note(f"  fix    {one.check}: {one.fix}")
    if not healthy:
        ctx.exit(1)


@controller.command()
@click.option(
    "--kubeconfig", default="", help="How to reach the cluster. By default as kubectl does, or as a pod of it."
)
@_context
@_namespace
@click.option(
    "--webhook-port", type=click.IntRange(0, 65535), default=9443, show_default=True, help="0: any that is free."
)
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Health and metrics."
)
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True, help="Several replicas need it.")
@click.option("--engines", default=",".join(ENGINES), show_default=True, help="Which engines to care for.")
@click.option("--log", type=click.Choice(["json", "text"]), default="text", show_default=True, help="How to log.")
def run(**given: Any) -> None:
    """Run the controller: in a pod of the cluster, or out of it with a kubeconfig.

    Out of the cluster it answers webhooks on 127.0.0.1, so the API server has to be on this machine. Install with
    penstock controller manifests --url https://127.0.0.1:9443, and use a kubeconfig of the service account penstock-controller: the policies
    let nobody else let pods go.

    \b
    penstock controller run --kubeconfig controller.kubeconfig --no-leader-elect --engines argo"""
    from penstock.cli.collecting import collect_garbage
    from penstock.controller.options import RunOptions

    engines = tuple(name.strip() for name in str(given["engines"]).split(",") if name.strip())
    execute = _main()
    collect_garbage()
    click.get_current_context().exit(execute(RunOptions(**{**given, "engines": engines})))


def _main() -> Any:
    """The controller's own packages are an extra: who only writes workflows does not need them."""
    from importlib import import_module

    from penstock.errors import Problem, UserError

    try:
        return import_module("penstock.controller.cluster.main").run
    except ImportError as error:
        fix = "pip install 'penstock[controller]'"
        raise UserError(Problem("P896", f"the controller cannot be loaded: {error}", fix)) from None


def _engines(without: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in ENGINES if name not in without)


def _others(also: tuple[str, ...]) -> Any:
    from penstock.controller.known import engines

    return tuple(engines(also)) if also else ()
