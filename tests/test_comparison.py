"""What bench.py reports, on layers small enough to run in clear."""

from dataclasses import replace

import pytest

from privcirnet import comparison as compare
from privcirnet.errors import RuleError
from privcirnet.he.cost import COUNTED, LINKS, linear_cost
from privcirnet.he.planner import Goal, paper_layer, plan_layer
from privcirnet.he.published import published_layer
from privcirnet.he.reference import network_shapes
from privcirnet.he.shape import LinearShape
from privcirnet.plots import grouped_bars

GOAL = Goal(COUNTED, LINKS["local"])
SHAPE = LinearShape(4, 4, 16, 8, 3, 1, 1)
SHAPES = {"a": SHAPE, "b": LinearShape.gemm(4, 16, 16), "c": SHAPE}
IN_CLEAR = compare.Contest("cleartext", 41, 2)


def plans(*names: str) -> dict[str, dict[str, object]]:
    return {name: compare.network_layers(SHAPES, name, "cirencode", 8, GOAL) for name in names}


def test_plans_by_name() -> None:
    assert compare.plan_layer("paper", "cirencode", SHAPE, 4, GOAL) == paper_layer(SHAPE, 4, 8192)
    assert compare.plan_layer("published", "cirencode", SHAPE, 4, GOAL) == published_layer(SHAPE, 4, 8192)
    assert compare.plan_layer("best", "any", SHAPE, 4, GOAL) == plan_layer(SHAPE, 4, replace(GOAL, family="any")).layer
    with pytest.raises(RuleError, match="this plan has no candidates: got published; use plan=paper or plan=best"):
        compare.explained("published", "cirencode", SHAPE, 4, GOAL)
    with pytest.raises(RuleError, match="the encoding bolt is for b = 1 and 1 x 1 kernels: got b = 4, kernel 3"):
        compare.plan_layer("best", "bolt", SHAPE, 4, GOAL)


def test_a_network_takes_the_largest_block_sizes_that_its_layers_allow() -> None:
    layers = compare.network_layers(network_shapes("vit_cifar"), "paper", "cirencode", 16, GOAL)
    assert {layer.block_size for layer in layers.values()} == {16, 2}
    assert layers["head"].block_size == 2
    assert compare.totals(layers)["rotations"] == sum(layer.rotations for layer in layers.values())


def test_networks_run_in_turns_and_like_layers_once() -> None:
    both, ticks = plans("best", "published"), []
    found = compare.run_networks(both, COUNTED, IN_CLEAR, lambda: ticks.append(1))
    assert len(ticks) == compare.network_runs(both, IN_CLEAR.repetitions) == 2 * 2 * 3
    for plan, layers in both.items():
        assert list(found[plan]) == ["a", "b", "c"]
        assert found[plan]["a"]["seconds"] == found[plan]["c"]["seconds"]
        for name, layer in layers.items():
            facts = found[plan][name]
            assert facts["max_abs_error"] == 0
            assert (facts["rotations"], facts["pmults"]) == (layer.rotations, layer.pmults)
            assert facts["seconds_total"] > 0


def test_summaries_and_savings() -> None:
    both = plans("best", "published")
    found = compare.run_networks(both, COUNTED, IN_CLEAR, lambda: None)
    ran = {plan: compare.network_summary(layers, COUNTED, found[plan]) for plan, layers in both.items()}
    assert ran["best"]["seconds_total"] == pytest.approx(sum(layer["seconds_total"] for layer in ran["best"]["layers"]))
    expected = sum(linear_cost(layer, COUNTED, LINKS["wan"]).total for layer in both["best"].values())
    assert ran["best"]["seconds_predicted"]["wan"] == pytest.approx(expected)
    saved = compare.savings(ran["best"], ran["published"])
    assert set(saved) == {"predicted_local", "predicted_lan", "predicted_wan", "measured"}
    assert saved["measured"] == 1 - ran["best"]["seconds_total"] / ran["published"]["seconds_total"]
    assert {"measured", "server"} <= set(compare.network_facts(ran["best"], COUNTED))
    planned = compare.network_summary(both["best"], COUNTED, None)
    assert "seconds_total" not in planned
    assert "measured" not in compare.network_facts(planned, COUNTED)
    assert "HE-Rot + 0.135 HE-Pmult" in compare.network_facts(planned, COUNTED)["predicted"]


def test_a_suite_compares_encodings_and_draws_them(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(compare, "SHAPES", {"conv 4x4": SHAPE, "gemm 4": SHAPES["b"]})
    ticks = []
    rows = compare.run_suite(GOAL, IN_CLEAR, (1, 8), lambda: ticks.append(1))
    assert len(ticks) == compare.suite_runs((1, 8), IN_CLEAR.repetitions) == 2 * 3 * 3
    names = ["Bolt, NeuJeans (b = 1)", "Cheetah (b = 1)", "PrivCirNet b = 8"]
    assert [(row["layer"], row["name"]) for row in rows] == [(s, n) for s in ("conv 4x4", "gemm 4") for n in names]
    assert all(row["max_abs_error"] == 0 for row in rows)
    assert rows[0]["speedup"] == rows[3]["speedup"] == 1
    assert rows[2]["speedup"] == rows[0]["seconds_total"] / rows[2]["seconds_total"]
    table = compare.suite_markdown(rows).splitlines()
    assert len(table) == 2 + len(rows)
    assert len({line.count("|") for line in table}) == 1
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        path = tmp_path / "new" / f"bars{suffix}"
        grouped_bars(path, rows, "a title")
        assert path.read_bytes().startswith(start)
        assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []
