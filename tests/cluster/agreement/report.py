"""What came out of a comparison, counted and in words. Called by the test and by __main__."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.cluster.agreement.intended import Case, Rule, explained
from tests.cluster.agreement.play import Play
from tests.cluster.agreement.told import Difference

_SHOWN = 6
_LONGEST = 300


def case_of(play: Play) -> Case:
    assert play.theirs is not None
    example = play.one.example
    return Case(example.engine, example.documents, play.theirs, play.ours.told, play.differences)


def unexplained(play: Play) -> list[Difference]:
    return [] if play.theirs is None or not play.differences else explained(case_of(play))[1]


@dataclass
class Report:
    files: int
    plays: Sequence[Play]
    left: Mapping[str, str]
    """What was not played, and why."""
    equal: int = 0
    meant: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[Play, list[Difference]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for play in self.plays:
            if play.theirs is None:
                continue
            if not play.differences:
                self.equal += 1
                continue
            rules, rest = explained(case_of(play))
            if rest:
                self.wrong.append((play, rest))
            else:
                self._count(rules)

    def _count(self, rules: Sequence[Rule]) -> None:
        """A run counts once."""
        self.meant[f"{rules[0].engine}: {rules[0].id}"] += 1

    def lines(self) -> list[str]:
        played = sum(play.theirs is not None for play in self.plays)
        left = Counter([*self.left.values(), *(play.left for play in self.plays if play.left)])
        counts = f"{self.equal} equal, {sum(self.meant.values())} different on purpose, {len(self.wrong)} different"
        found = [f"{self.files} files, {played} runs on both sides: {counts}"]
        for title, counted in (("on purpose", self.meant), ("not played", left)):
            found += [f"  {title}: {number} × {what}" for what, number in counted.most_common()]
        for play, rest in self.wrong:
            found.append(f"  DIFFERENT {play.one.label}")
            found += [f"    {str(one)[:_LONGEST]}" for one in _roots(rest)[:_SHOWN]]
        return found


def _roots(differences: Sequence[Difference]) -> list[Difference]:
    """Without those inside a step that is itself different."""
    paths = {one.path for one in differences if one.path}
    return [one for one in differences if not any(one.path.startswith(f"{path}/") for path in paths)]
