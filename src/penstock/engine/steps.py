"""The nouns of RunState: tasks, steps that have begun, calls of workflows. Plain state, changed by RunState and its ReadyQueue alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from penstock.engine.blueprint import Blueprint, Items, StepPlan
from penstock.graph.model import Action, Outcome, Step


class Task:
    """One execution unit that has been taken and has not ended."""

    __slots__ = (
        "action",
        "attempt",
        "counted",
        "error",
        "execution",
        "exit_code",
        "index",
        "inputs",
        "key",
        "path",
        "permit",
        "round",
        "state",
        "step_path",
        "timeout",
        "tries",
    )

    def __init__(self, state: StepState, index: int, round: int, path: str, inputs: dict[str, Any]) -> None:
        self.state = state
        self.step_path = state.path
        self.index = index
        self.round = round
        self.path = path
        self.inputs = inputs
        self.action: Action = state.plan.step.action
        self.timeout: float | None = state.plan.step.timeout
        self.key = ""
        self.attempt = 0
        """Names attempts: counts every start."""
        self.tries = 0
        """Against the retry limit: counts failures only."""
        self.execution: Any = None
        """What the engine keeps of its execution (see active_run)."""
        self.permit: Any = None
        """What it holds of the quota that its step waited for; the loop's own. None: nothing."""
        self.counted = False
        """It is one of those that may run at a time in the whole run."""
        self.exit_code = -1
        """Of the command, once it has failed with one."""
        self.error: dict[str, str] | None = None
        """What it has failed with: {name, message}."""

    @property
    def step(self) -> Step:
        return self.state.plan.step

    @property
    def item(self) -> dict[str, Any] | None:
        """Its loop variables."""
        return None if self.state.items is None else self.state.items[self.index]


class StepState:
    """A step whose time has come, until all its tasks have ended."""

    __slots__ = (
        "columns",
        "cursor",
        "done",
        "enough",
        "items",
        "limit",
        "line",
        "live",
        "n",
        "path",
        "permits",
        "place",
        "plan",
        "queued",
        "rounds",
        "scope",
        "status",
        "tally",
    )

    def __init__(self, scope: WorkflowScope, plan: StepPlan, items: Items | None, at_once: int | None = None) -> None:
        self.scope = scope
        self.plan = plan
        self.items = items
        self.n = 1 if items is None else items.count
        self.limit = at_once or self.n
        self.enough: int | None = None
        """How many more tasks may end with what its for-each has enough of; below 0: it has. None: it is not asked for."""
        self.status = bytearray(self.n)
        self.cursor = 0
        self.live = 0
        self.done = 0
        self.columns: dict[str, list[Any]] = {}
        self.tally: dict[Outcome, int] = {}
        self.rounds: dict[int, int] = {}
        """Of while loops: the round each item is in."""
        self.queued = False
        self.place: tuple[int, ...] = ()
        """When it was ready first, among all steps; of what begins with a called workflow: where the call stands, and when after that."""
        self.permits: list[Any] | None = None
        """One for each further task that has been admitted. None: it does not queue."""
        self.line: deque[Task] = deque()
        """Tasks that are to be started and have not been admitted, or not again."""
        self.path = scope.step_prefix + plan.step.name

    def task_path(self, index: int, round: int) -> str:
        path = self.scope.prefix + self.plan.step.name
        if self.items is not None:
            path = f"{path}[{index}]"
        return f"{path}#{round}" if self.plan.step.loop is not None and round else path

    @property
    def open(self) -> bool:
        """Is there a task to take?"""
        return self.cursor < self.n and self.live < self.limit

    @property
    def wanted(self) -> int:
        """How many more tasks could run now if they were admitted."""
        return len(self.line) + self.unpermitted

    @property
    def unpermitted(self) -> int:
        """How many more tasks could be taken if there were permits for them."""
        return max(0, min(self.n - self.cursor, self.limit - self.live) - len(self.permits or ()))

    @property
    def exempt(self) -> bool:
        """Does it, or what calls it, never queue? Exit handlers do not, nor what is declared so."""
        scope, plan = self.scope, self.plan
        while plan.number < scope.blueprint.main and not plan.step.exempt:
            if scope.owner is None:
                return False
            plan, scope = scope.owner.state.plan, scope.owner.state.scope
        return True


class WorkflowScope:
    """One call of a workflow: the run itself, or a step that is a workflow."""

    __slots__ = (
        "blocked",
        "blueprint",
        "depth",
        "failures",
        "halt",
        "halted",
        "left",
        "live",
        "messages",
        "outcome",
        "outcomes",
        "owner",
        "params",
        "phase",
        "prefix",
        "states",
        "step_prefix",
        "steps",
        "view",
        "waiting",
        "why",
    )

    def __init__(
        self,
        blueprint: Blueprint,
        params: dict[str, Any],
        prefix: str,
        step_prefix: str,
        owner: Task | None,
        run: Mapping[str, str],
    ) -> None:
        self.blueprint = blueprint
        self.params = params
        self.prefix = prefix
        self.step_prefix = step_prefix
        self.owner = owner
        self.steps: dict[str, Any] = {}
        self.view: dict[str, Any] = {"params": params, "steps": self.steps, "run": run}
        self.depth: int = 0 if owner is None else owner.state.scope.depth + 1
        count = len(blueprint.plans)
        self.states: list[StepState | None] = [None] * count
        self.outcomes: list[Outcome | None] = [None] * count
        self.waiting = [len(plan.edges) for plan in blueprint.plans]
        self.left = blueprint.main
        self.live = 0
        self.phase = "main"
        self.outcome: Outcome | None = None
        self.why = ""
        self.halted = ""
        """Why nothing more starts here, in words."""
        self.halt = ""
        """The same as one of: cancelled, now, timeout, fail fast, enough; dropped: what is around has enough."""
        self.blocked: deque[StepState] = deque()
        """Steps that have tasks to start when others end, because only so many may run at a time."""
        self.failures: list[int] = []
        self.messages: dict[int, str] = {}
        """What was said when a step failed first."""
