"""Amounts of resources as text."""

from __future__ import annotations

from penstock.service.amounts import UNLIMITED, added, amount, figure, in_sentence, in_table, spell, vector

GPU = "nvidia.com/gpu"


def test_cpu_is_in_thousandths_and_everything_else_in_whole_units() -> None:
    assert amount(500, "cpu") == "500m cpu"
    assert amount(2, GPU) == "2 gpu" and figure(3 * 2**29, "memory") == "1.5Gi" and figure(-2000, "cpu") == "-2"
    assert figure(UNLIMITED, "memory") == spell(UNLIMITED, "cpu") == "unlimited"


def test_a_vector_names_the_scarcest_first_and_leaves_out_what_is_zero() -> None:
    assert vector({"memory": 2**30, "cpu": 2000, GPU: 4}) == "4 gpu, 2 cpu, 1Gi memory"
    assert vector({"cpu": 0}) == vector({}) == "nothing"


def test_the_order_of_resources() -> None:
    names = ["memory", GPU, "cpu"]
    assert in_sentence(names) == [GPU, "cpu", "memory"] and in_table(names) == ["cpu", "memory", GPU]


def test_vectors_are_added() -> None:
    assert added([{"cpu": 1}, {"cpu": 2, "memory": 3}, {}]) == {"cpu": 3, "memory": 3}
