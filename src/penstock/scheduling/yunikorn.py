"""YuniKorn (1.9) as a scheduler of jobs: its labels on every pod, and gangs as task groups. Entry point `yunikorn` of penstock.schedulers.

YuniKorn reads pods only, and the first pod that it sees defines the application. So everything is written into every pod template. KubeRay's own YuniKorn plugin
takes what the Ray object says, so Ray objects have the same marks.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from penstock.errors import Problem, UserError
from penstock.formats.documents import part
from penstock.formats.report import Report
from penstock.scheduling import keys, task_groups
from penstock.scheduling.model import Binding, Gang, JobLabels, JobObject, Marks, Role, shown

ROOT: Final = "root"
QUEUE: Final = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}\Z", re.A)
APP: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?\Z", re.A)
REFUSED: Final = "P888"


class YuniKorn:
    """Pure: each verb answers with data."""

    name = keys.YUNIKORN

    def queue_name(self, organisation: str, job_type: str) -> str:
        return full(f"{organisation}.{job_type}")

    def set_scheduler_name(self, job: JobObject) -> str:
        return keys.YUNIKORN

    def create_labels(self, job: JobObject, binding: Binding, report: Report) -> JobLabels:
        queue = full(binding.queue)
        check_queue(queue)
        labels = {keys.YK_QUEUE: queue, keys.OLD_QUEUE: queue}
        app = self._app(job, binding, report)
        if app:
            labels |= {keys.APP: app, keys.OLD_APP: app}
        annotations = {}
        if binding.allow_preemption is not None:
            annotations[keys.ALLOW_PREEMPTION] = "true" if binding.allow_preemption else "false"
        if binding.user:
            annotations[keys.USER_INFO] = self._user(job, binding, report)
        if binding.priority:
            said = (
                f"YuniKorn takes the priority of a pod from its priorityClassName, so {binding.priority} is not written"
            )
            report.lost(
                "metadata", f"{job.title}: {said}", "set priorityClassName in the pod templates", job.document.source()
            )
        own: dict[str, str] = {key: labels[key] for key in (keys.APP, keys.YK_QUEUE) if key in labels}
        return JobLabels(Marks(own) if _is_ray(job) else Marks(), Marks(), Marks(labels, annotations))

    def create_group_labels(self, job: JobObject, binding: Binding, report: Report) -> Gang:
        if not binding.gang:
            return Gang()
        members = task_groups.members_of(job)
        if not members:
            self._no_gang(job, report)
            return Gang()
        marks = {keys.GROUPS: task_groups.as_text(job, members)}
        if binding.style or binding.timeout is not None:
            marks[keys.PARAMETERS] = parameters(binding)
        pods = Marks({}, marks)
        return Gang(members, pods if _is_ray(job) else Marks(), pods)

    def get_group_labels(self, job: JobObject, gang: Gang, role: Role) -> Marks:
        member = gang.of(role.name)
        if role.slot.shared and gang.members:
            member = gang.members[0]
        return gang.pods if member is None else gang.pods | Marks({}, {keys.GROUP: member.name})

    def _app(self, job: JobObject, binding: Binding, report: Report) -> str:
        if binding.app:
            if not APP.match(binding.app):
                raise _refused(
                    f"{binding.app[:80]!r} is no id of an application",
                    "use lower case letters, digits and '-', 63 at most",
                )
            return binding.app
        if job.kind.job_type == "spark":
            said = "Spark gives each run an application id of its own (spark-app-selector), so none is written"
            report.kept("metadata", f"{job.title}: {said}", job.document.source())
            return ""
        own = part(job.document.metadata, "labels").get(keys.APP)
        if isinstance(own, str) and own:
            return own
        if not job.document.metadata.get("name"):
            said = "it has no name, only generateName, so all objects made from it would be one application"
            report.lost(
                "metadata.generateName",
                f"{job.title}: {said}",
                "give each its own id: --app ID",
                job.document.source("metadata"),
            )
        return application_id(job, binding.namespace)

    def _user(self, job: JobObject, binding: Binding, report: Report) -> str:
        said = "user.info is only taken from users whom YuniKorn trusts: it refuses pods of an operator that is none of them"
        advice = "list the operator's service account in admissionController.accessControl.externalUsers"
        report.changed("metadata", f"{job.title}: {said}", advice, job.document.source())
        return json.dumps(
            {"user": binding.user, "groups": list(binding.groups)}, separators=(",", ":"), ensure_ascii=False
        )

    def _no_gang(self, job: JobObject, report: Report) -> None:
        roles = [role for role in job.roles if role.members]
        if any(role.slot.shared for role in roles) and sum(role.members for role in roles) > 1:
            said = (
                "its pods all carry the same annotations, and they are not of one size, so they cannot be task groups"
            )
            advice = "give scheduler and workers equal requests and placement, or make the workers a DaskWorkerGroup"
            report.lost("spec", f"{job.title} has no gang: {said}", advice, job.document.source("spec"))


def full(queue: str) -> str:
    """The path of a queue from the root."""
    return queue if queue == ROOT or queue.startswith(f"{ROOT}.") else f"{ROOT}.{queue}"


def check_queue(queue: str) -> None:
    """Raises UserError, P888."""
    for name in queue.split("."):
        if not QUEUE.match(name):
            raise _refused(
                f"{name[:80]!r} in {queue[:120]!r} is no name of a queue",
                "use letters, digits, '_' and '-', with dots between the names",
            )
    if len(queue) > keys.LONGEST_LABEL:
        message = f"the queue {queue[:120]!r} has {len(queue)} characters, and a label holds {keys.LONGEST_LABEL}"
        raise _refused(message, "use shorter names: the whole path must fit into one label")
    if not queue.replace(".", "").replace("-", "").replace("_", "").isalnum() or not queue[-1].isalnum():
        raise _refused(
            f"the queue {queue[:120]!r} is no value of a label",
            "use letters, digits, '_' and '-'; end with a letter or digit",
        )


def _refused(message: str, fix: str) -> UserError:
    return UserError(Problem(REFUSED, message, fix))


def application_id(job: JobObject, namespace: str = "") -> str:
    """The same for the same object, so that a manifest that is applied twice is one application, and another for each namespace."""
    document = job.document
    place = document.namespace or namespace
    digest = hashlib.sha256("/".join((place, document.kind, document.name)).encode()).hexdigest()[:8]
    name = task_groups.group_name(f"{document.kind}-{document.name}", ())
    return f"{name[: keys.LONGEST_LABEL - 9].rstrip('-')}-{digest}"


def parameters(binding: Binding) -> str:
    """Separated by single spaces: YuniKorn skips what two spaces make."""
    found = []
    if binding.timeout is not None:
        found.append(f"{keys.TIMEOUT}={binding.timeout}")
    if binding.style:
        found.append(f"{keys.STYLE}={binding.style}")
    return " ".join(found)


def _is_ray(job: JobObject) -> bool:
    return job.kind.api_group == "ray.io"


def place_of(role: Role) -> str:
    return shown(role.slot.labels) if role.slot.labels else role.name


PLUGIN = YuniKorn()
