import pytest

from privcirnet.blocksize_search.assignment import Cap, Constraints
from privcirnet.blocksize_search.solve import solve, sweep, uniform_points
from tests.blocksize_search.instances import instance


@pytest.mark.parametrize("seed", range(5))
def test_a_front_falls_and_every_point_is_the_optimum_of_its_budget(seed):
    omegas, seconds, _ = instance(seed)
    front = sweep(omegas, seconds, 6)
    assert 1 <= len(front) <= 6
    for budget, solution in front:
        assert solution == solve(omegas, seconds, budget)
    values = [solution.sensitivity for _, solution in front]
    assert values == sorted(values, reverse=True)
    assert len({tuple(s.block_sizes.values()) for _, s in front}) == len(front)
    for point in uniform_points(omegas, seconds).values():
        best = solve(omegas, seconds, point.latency)
        assert best.sensitivity <= point.sensitivity * (1 + 1e-12)


def test_pins_move_the_ends_and_caps_leave_budgets_out():
    omegas = {"a": {1: 0.0, 2: 1.0}, "b": {1: 0.0, 2: 1.0}}
    seconds = {"a": {1: 2.0, 2: 1.0}, "b": {1: 2.0, 2: 1.0}}
    assert [b for b, _ in sweep(omegas, seconds, 3, Constraints(pinned={"a": 1}))] == pytest.approx([3.0, 4.0])
    growing = {name: {1: 1.0, 2: 2.0} for name in "ab"}
    capped = sweep(omegas, seconds, 3, Constraints(caps=[Cap("traffic", growing, 2.0)]))
    assert [s.block_sizes for _, s in capped] == [{"a": 1, "b": 1}]


def test_uniform_points_fall_back_to_what_a_layer_admits():
    points = uniform_points(
        {"a": {1: 0.0, 4: 5.0}, "b": {1: 0.0, 2: 1.0}}, {"a": {1: 4.0, 4: 1.0}, "b": {1: 2.0, 2: 1.0}}
    )
    assert {b: p.block_sizes for b, p in points.items()} == {
        1: {"a": 1, "b": 1},
        2: {"a": 1, "b": 2},
        4: {"a": 4, "b": 2},
    }
    assert (points[4].latency, points[4].sensitivity) == (2.0, 6.0)
