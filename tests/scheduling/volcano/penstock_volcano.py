"""Volcano as a scheduler of `penstock schedule`: one PodGroup for each job, made before it."""

from __future__ import annotations

from penstock.plugins import Binding, Gang, JobLabels, JobObject, Marks, Member, Report, Role, quantity_text

GROUP = "scheduling.k8s.io/group-name"
TASK = "volcano.sh/task-spec"
QUEUE = "volcano.sh/queue-name"


class Volcano:
    name = "volcano"

    def queue_name(self, organisation: str, job_type: str) -> str:
        return f"{organisation}-{job_type}"

    def set_scheduler_name(self, job: JobObject) -> str:
        return "volcano"

    def create_labels(self, job: JobObject, binding: Binding, report: Report) -> JobLabels:
        if binding.user:
            report.lost("metadata", f"{job.title}: Volcano knows no users", "use a queue for each")
        return JobLabels(pods=Marks({QUEUE: binding.queue}))

    def create_group_labels(self, job: JobObject, binding: Binding, report: Report) -> Gang:
        roles = [role for role in job.roles if role.members]
        if not binding.gang or not roles:
            return Gang()
        members = tuple(Member(role.name, role.group, role.members, role.requests) for role in roles)
        pods = Marks({}, {GROUP: self._group(job)})
        return Gang(members, pods=pods, documents=(self._pod_group(job, binding, members),))

    def get_group_labels(self, job: JobObject, gang: Gang, role: Role) -> Marks:
        return gang.pods | Marks({}, {TASK: role.group}) if gang.of(role.name) else Marks()

    def _group(self, job: JobObject) -> str:
        return f"{job.document.kind.lower()}-{job.document.name}"

    def _pod_group(self, job: JobObject, binding: Binding, members: tuple[Member, ...]) -> dict[str, object]:
        total: dict[str, int] = {}
        for one in members:
            for resource, amount in one.total.items():
                total[resource] = total.get(resource, 0) + amount
        return {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {
                "name": self._group(job),
                "namespace": job.document.namespace or binding.namespace or "default",
            },
            "spec": {
                "minMember": sum(one.count for one in members),
                "minTaskMember": {one.name: one.count for one in members},
                "minResources": {name: quantity_text(amount, name) for name, amount in sorted(total.items())},
                "queue": binding.queue,
            },
        }


SCHEDULER = Volcano()
