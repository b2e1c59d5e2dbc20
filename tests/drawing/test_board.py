"""Any number of steps as a bounded number of boxes: nothing is left out, what failed is seen, and the same graph gives the same picture."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from penstock.drawing.board import (
    GAP,
    GROUPS,
    HEIGHT,
    LOUD,
    MOST_BOXES,
    MOST_COLUMNS,
    MOST_EDGES,
    WIDTH,
    BoardChoice,
    BoardStep,
    StepBoard,
    board,
    depths,
)

STATES = [state for states in GROUPS.values() for state in states]


@st.composite
def graphs(draw: st.DrawFn, most: int = 250) -> list[BoardStep]:
    many = draw(st.integers(0, most))
    chance = draw(st.randoms(use_true_random=False))
    wide = draw(st.sampled_from([1, 3, 40, 400]))
    return [
        BoardStep(
            f"s{number}",
            tuple({f"s{max(0, number - chance.randint(1, wide))}" for _ in range(chance.randint(0, 2)) if number}),
            chance.choice(STATES),
        )
        for number in range(many)
    ]


def placed(made: StepBoard) -> dict[str, int]:
    return {member: box.column for box in made.boxes for member in box.members}


@given(graphs())
def test_every_step_is_in_exactly_one_box_and_edges_lead_to_the_right(steps: list[BoardStep]) -> None:
    made = board(steps)
    members = [member for box in made.boxes for member in box.members]
    assert sorted(members) == sorted(step.id for step in steps)
    column = depths(steps)
    for box in made.boxes:
        band = made.columns[box.column]
        assert all(band.first <= column[member] <= band.last for member in box.members)
        assert 0 <= box.x <= made.width - WIDTH and 0 <= box.y <= made.height - HEIGHT
    where = placed(made)
    for edge in made.edges:
        assert made.boxes[edge.source].column < made.boxes[edge.target].column
    if not made.left_out:
        crossing = sum(where[up] < where[step.id] for step in steps for up in step.before if up != step.id)
        assert sum(edge.many for edge in made.edges) == crossing


@given(graphs())
def test_boxes_of_a_column_do_not_touch(steps: list[BoardStep]) -> None:
    made = board(steps)
    for number in range(len(made.columns)):
        at = sorted(box.y for box in made.boxes if box.column == number)
        assert all(b - a >= HEIGHT + GAP - 0.2 for a, b in zip(at, at[1:], strict=False))


@given(graphs(40), st.data())
def test_what_an_address_names_that_is_not_there_is_passed_over(steps: list[BoardStep], data: st.DataObject) -> None:
    text = st.text(max_size=8)
    span = data.draw(st.none() | st.tuples(st.integers(-5, 500), st.integers(-5, 500)))
    found = data.draw(st.lists(text | st.sampled_from([step.id for step in steps] or ["x"])))
    made = board(steps, BoardChoice(found, span, data.draw(st.lists(text))))
    assert steps == [] or made.boxes


def test_a_small_graph_is_drawn_as_it_is() -> None:
    steps = [BoardStep("a"), BoardStep("b"), BoardStep("c", ("a", "b")), BoardStep("d", ("a", "c"))]
    made = board(steps)
    assert not made.folded and [box.id for box in made.boxes] == ["a", "b", "c", "d"]
    assert [box.column for box in made.boxes] == [0, 0, 1, 2]
    c = made.boxes[2]
    [long] = [edge for edge in made.edges if (edge.source, edge.target) == (0, 3)]
    crossed = float(long.path.split("H")[0].split()[-1])
    assert not c.y <= crossed <= c.y + HEIGHT  # between the boxes of the column that it passes


def test_ten_thousand_steps_are_a_page() -> None:
    """Of a stage that is wide, and of a long chain."""
    wide = [
        BoardStep(f"s{n}", (f"s{n - 2500}",) if n >= 2500 else (), "failed" if n % 1000 == 7 else STATES[n % 5])
        for n in range(10_000)
    ]
    chain = [BoardStep(f"s{n}", (f"s{n - 1}",) if n else (), "succeeded" if n < 5000 else "") for n in range(10_000)]
    for steps in (wide, chain):
        start = time.process_time()
        made = board(steps)
        assert time.process_time() - start < 2
        assert len(made.boxes) <= MOST_BOXES and len(made.columns) <= MOST_COLUMNS and len(made.edges) <= MOST_EDGES
        assert made == board(list(steps))
    made = board(wide)
    first = [box for box in made.boxes if box.column == 0]
    assert [box.group for box in first[:LOUD]] == [""] * LOUD and first[0].id == "s0"  # failed, in the author's order
    made = board(chain, BoardChoice(span=(4800, 4815)))
    assert [column.first for column in made.columns] == list(range(4800, 4816)) and not made.folded


def test_a_group_opens_and_what_is_searched_for_comes_first() -> None:
    steps = [BoardStep(f"s{n}", (), "waiting") for n in range(500)]
    made = board(steps)
    assert [box.id for box in made.boxes] == ["0-0.waiting"] and len(made.boxes[0].members) == 500
    made = board(steps, BoardChoice(opened=("0-0.waiting",)))
    assert len(made.boxes) == 151 and made.boxes[-1].is_group and len(made.boxes[-1].members) == 350
    made = board(steps, BoardChoice(found={"s499", "s7"}))
    assert [box.id for box in made.boxes] == ["s7", "s499", "0-0.waiting"]


def test_a_circle_is_drawn_too() -> None:
    made = board([BoardStep("a", ("b",)), BoardStep("b", ("a",)), BoardStep("c", ("b", "nowhere"))])
    assert {box.id for box in made.boxes} == {"a", "b", "c"}
