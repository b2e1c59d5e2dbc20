"""Settings: where data is stored and how many tasks may run. Read once by a command or a runner, which passes them on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock import rights
from penstock.errors import Problem, UserError

FOLDER = ".penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What Penstock is told from outside, read once by the caller."""

    home: Path
    """The folder for logs, artifacts, scratch files and, by default, the store. $PENSTOCK_HOME, or the nearest .penstock."""
    store: str = field(repr=False)
    """A folder, or postgresql://… $PENSTOCK_STORE. May have a password in it: show it by service.stores.name_of."""
    artifacts: str
    """A folder, or any fsspec URL (s3://…). $PENSTOCK_ARTIFACTS."""
    jobs: int
    """How many tasks may run at the same time. $PENSTOCK_JOBS, or the number of processors."""
    on_host: bool = False
    """May the commands of images run on this machine if podman or docker cannot run them? $PENSTOCK_ON_HOST."""
    lock_policy: str = "priority"
    """Who gets a free lock first (see store.lock_policies). $PENSTOCK_LOCK_POLICY."""
    named: bool = True
    """Did the user name the home folder? One that was only found must be the user's own (see rights)."""
    pickles: bool = True
    """May objects be stored and loaded as pickles? $PENSTOCK_PICKLES=no forbids it."""
    scheduler: str = ""
    """Who queues on the cluster what resource steps make, and tasks that run there: kueue, yunikorn, …; `none`. $PENSTOCK_SCHEDULER; empty: Kueue, if it has
    the queue."""
    largest_value: int | None = None
    """Bytes that are read into memory of one output. $PENSTOCK_LARGEST_VALUE; None: the default of artifacts.regular."""
    largest_file: int | None = None
    """Bytes of a file or folder that is an output. $PENSTOCK_LARGEST_FILE; None: the default of artifacts.regular."""
    submissions: int = 600
    """How many runs may be submitted to a server with one token, a minute; 0: any number. $PENSTOCK_SUBMISSIONS."""
    callback_hosts: tuple[str, ...] = ()
    """Addresses, networks and names that callbacks may be sent to although they are not of the open internet. $PENSTOCK_CALLBACK_HOSTS."""
    links: int = 1000
    """How many runs may follow from one, over all links. $PENSTOCK_LINKS."""
    address: str = ""
    """Where others reach a server of this store, as in https://penstock.example: what waits for an answer gives it away. $PENSTOCK_ADDRESS."""
    server: str = field(default="", repr=False)
    """The address of the server whose runs, queues and files are meant, instead of those here; may have a token in it. Set by whoever takes
    --server (see service.remote_store): never read from the environment, so that a server and its workers do not ask themselves."""

    @property
    def queues_pods(self) -> str:
        """The scheduler, if it queues the pods of tasks by what is written on them; empty if it does not."""
        if not self.scheduler:
            return ""
        from penstock.scheduling.registry import takes_pods

        return self.scheduler if takes_pods(self.scheduler) else ""


def read(
    environ: Mapping[str, str] | None = None,
    home: str | Path | None = None,
    store: str | None = None,
    jobs: int | None = None,
) -> Settings:
    """From the arguments, the environment, and the current folder, in this order. Raises UserError."""
    env = os.environ if environ is None else environ
    named = home or env.get("PENSTOCK_HOME")
    place = Path(named or nearest(Path.cwd())).absolute()
    if not named and (owner := rights.stranger(place)):
        raise rights.refusal(place, owner, place)
    return Settings(
        home=place,
        store=store or env.get("PENSTOCK_STORE") or str(place),
        artifacts=env.get("PENSTOCK_ARTIFACTS") or str(place / "artifacts"),
        jobs=_jobs(env, jobs),
        on_host=_yes(env, "PENSTOCK_ON_HOST"),
        lock_policy=env.get("PENSTOCK_LOCK_POLICY") or "priority",
        named=bool(named),
        pickles=_yes(env, "PENSTOCK_PICKLES", default=True),
        scheduler=_scheduler(env),
        largest_value=size_in(env, "PENSTOCK_LARGEST_VALUE"),
        largest_file=size_in(env, "PENSTOCK_LARGEST_FILE"),
        submissions=_submissions(env),
        callback_hosts=tuple(filter(None, map(str.strip, env.get("PENSTOCK_CALLBACK_HOSTS", "").split(",")))),
        links=_links(env),
        address=_address(env),
    )


def nearest(folder: Path) -> Path:
    """The .penstock of this folder, or of the nearest one above it that has one. If none has, that of this folder, to be made later."""
    for one in (folder, *folder.parents):
        if (one / FOLDER).is_dir():
            return one / FOLDER
    return folder / FOLDER


def size_in(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    if not text:
        return None
    from penstock.graph import quantity

    try:
        size = quantity.parse(text) // 1000
    except ValueError:
        size = 0
    if size <= 0:
        fix = f"give a number of bytes above 0, or one with a unit, as in {name}=512Mi"
        raise UserError(Problem("P424", f"{name} is {text!r}, which is not a size", fix))
    return size


def _yes(env: Mapping[str, str], name: str, default: bool = False) -> bool:
    """What is not understood is refused: a door that was to be closed must not stay open for a typing mistake."""
    text = env.get(name, "").strip().lower()
    if not text:
        return default
    if text in ("yes", "1", "true", "no", "0", "false"):
        return text in ("yes", "1", "true")
    raise UserError(Problem("P457", f"{name} is {text!r}", "set it to yes or no"))


def _scheduler(env: Mapping[str, str]) -> str:
    """Raises UserError: there is no such scheduler."""
    name = env.get("PENSTOCK_SCHEDULER", "")
    if name and name != "none":
        from penstock.scheduling.registry import scheduler

        scheduler(name)
    return name


def _address(env: Mapping[str, str]) -> str:
    text = env.get("PENSTOCK_ADDRESS", "").strip()
    if text and (not text.startswith(("http://", "https://")) or any(char.isspace() or char in "?#" for char in text)):
        fix = "set it to where others reach the server, as in https://penstock.example"
        raise UserError(Problem("P536", f"PENSTOCK_ADDRESS is {text[:80]!r}, which is not an address", fix))
    return text


def _submissions(env: Mapping[str, str]) -> int:
    text = env.get("PENSTOCK_SUBMISSIONS", "").strip()
    if not text:
        return 600
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    fix = "set it to how many runs may be submitted with one token in a minute; 0: any number"
    raise UserError(Problem("P974", f"PENSTOCK_SUBMISSIONS is {text[:40]!r}, which is not a number", fix))


def _links(env: Mapping[str, str]) -> int:
    text = env.get("PENSTOCK_LINKS", "").strip()
    if not text:
        return 1000
    if text.isascii() and text.isdecimal() and int(text[:10]) > 0 and len(text) < 10:
        return int(text)
    fix = "set it to how many runs may follow from one by links, as in PENSTOCK_LINKS=1000"
    raise UserError(Problem("P548", f"PENSTOCK_LINKS is {text[:40]!r}, which is not a number above 0", fix))


def _jobs(env: Mapping[str, str], given: int | None) -> int:
    text = str(given) if given is not None else env.get("PENSTOCK_JOBS", "")
    if text:
        if text.isdecimal() and int(text) > 0:
            return int(text)
        raise UserError(Problem("P407", f"{text!r} is not a number of jobs", "give a whole number above 0, as in -j 4"))
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
