"""What bench.py reports, on layers small enough to run in clear."""

import pytest

from benchmarks.bench import engines, memory, online, results, runs
from benchmarks.bench.networks import network_shapes
from privcirnet.errors import RuleError
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import Objective, linear_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import plan_layer
from privcirnet.he.planning.profile import COUNTED
from privcirnet.report.plots import grouped_bars, roofline
from tests.he.layer_examples import paper_layer

GOAL = Objective(COUNTED, LINKS["local"])
SHAPE = LinearShape(4, 4, 16, 8, 3, 1, 1)
SHAPES = {"a": SHAPE, "b": LinearShape.gemm(4, 16, 16), "c": SHAPE}
IN_CLEAR = runs.BenchRun(41, 2)


def layouts(*names: str) -> dict[str, dict[str, object]]:
    return {name: runs.network_layers(SHAPES, name, "cirencode", 8, GOAL) for name in names}


def competitors(**engines: str) -> dict[str, runs.Competitor]:
    """On engines of the server, by layout."""
    return {name: runs.Competitor(layouts(name)[name], engine, COUNTED) for name, engine in engines.items()}


def test_layouts_by_name() -> None:
    assert runs.plan_layer("paper", "cirencode", SHAPE, 4, GOAL) == paper_layer(SHAPE, 4, 8192)
    assert runs.plan_layer("best", "cirencode", SHAPE, 4, GOAL) == plan_layer(SHAPE, 4, GOAL).layer
    with pytest.raises(RuleError, match="the encoding bolt is for b = 1 and 1 x 1 kernels: got b = 4, kernel 3"):
        runs.plan_layer("best", "bolt", SHAPE, 4, GOAL)


def test_a_network_takes_the_largest_block_sizes_that_its_layers_allow() -> None:
    layers = runs.network_layers(network_shapes("vit_cifar"), "paper", "cirencode", 16, GOAL)
    assert {layer.block_size for layer in layers.values()} == {16, 2}
    assert layers["head"].block_size == 2
    assert results.totals(layers)["rotations"] == sum(layer.rotations for layer in layers.values())


def test_networks_run_in_turns_and_like_layers_once() -> None:
    both, ticks = layouts("best", "paper"), []
    entered = competitors(best="cleartext", paper="cleartext")
    found = runs.run_networks(entered, IN_CLEAR, lambda: ticks.append(1))
    assert len(ticks) == runs.network_runs(entered, IN_CLEAR.repetitions) == 2 * 2 * 3
    for layout, layers in both.items():
        assert list(found[layout]) == ["a", "b", "c"]
        assert found[layout]["a"]["seconds"] == found[layout]["c"]["seconds"]
        for name, layer in layers.items():
            made = found[layout][name]
            assert made["max_abs_error"] == 0
            assert (made["rotations"], made["pmults"]) == (layer.rotations, layer.pmults)
            assert made["seconds_total"] > 0


def test_summaries_and_savings() -> None:
    both, entered = layouts("best", "paper"), competitors(best="cleartext", paper="cleartext")
    found = runs.run_networks(entered, IN_CLEAR, lambda: None)
    ran = {layout: results.network_summary(layers, COUNTED, found[layout]) for layout, layers in both.items()}
    assert ran["best"]["seconds_total"] == pytest.approx(sum(layer["seconds_total"] for layer in ran["best"]["layers"]))
    expected = sum(linear_cost(layer, COUNTED, LINKS["wan"]).total for layer in both["best"].values())
    assert ran["best"]["seconds_predicted"]["wan"] == pytest.approx(expected)
    saved = results.against(ran["best"], "against", ran["paper"])["saved"]
    assert set(saved) == {*(f"predicted_{link}" for link in LINKS), "measured"}
    assert saved["measured"] == 1 - ran["best"]["seconds_total"] / ran["paper"]["seconds_total"]
    assert "measured" in results.network_facts(ran["best"], COUNTED)
    assert "server" not in results.network_facts(ran["best"], COUNTED), "seconds over units"
    planned = results.network_summary(both["best"], COUNTED, None)
    assert "seconds_total" not in planned
    assert "measured" not in results.network_facts(planned, COUNTED)
    assert "HE-Rot + 0.135 HE-Pmult" in results.network_facts(planned, COUNTED)["predicted"]


def test_a_suite_compares_encodings_and_draws_them(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(runs, "SHAPES", {"conv 4x4": SHAPE, "gemm 4": SHAPES["b"]})
    monkeypatch.setattr(runs, "BASELINES", {})
    ticks = []
    rows = runs.run_suite(GOAL, "cleartext", IN_CLEAR, (1, 8), lambda: ticks.append(1))
    assert len(ticks) == runs.suite_runs((1, 8), IN_CLEAR.repetitions) == 2 * 2 * 3
    names = ["Bolt, NeuJeans (b = 1)", "PrivCirNet b = 8"]
    assert [(row["layer"], row["name"]) for row in rows] == [(s, n) for s in ("conv 4x4", "gemm 4") for n in names]
    assert all(row["max_abs_error"] == 0 for row in rows)
    assert rows[0]["speedup"] == rows[2]["speedup"] == 1
    assert rows[1]["speedup"] == rows[0]["seconds_total"] / rows[1]["seconds_total"]
    table = results.markdown(results.suite_table(rows, COUNTED)).splitlines()
    assert "| predicted units |" in table[0], "of a counted profile"
    assert len(table) == 2 + len(rows)
    assert len({line.count("|") for line in table}) == 1
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        path = tmp_path / "new" / f"bars{suffix}"
        grouped_bars(path, rows, "a title")
        assert path.read_bytes().startswith(start)
        assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []


def test_engines_are_held_against_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """On one small layer: both engines exact, a table, a picture, the least times of what was counted."""
    monkeypatch.setattr(engines, "LAYERS", {"conv 4x4": (SHAPE, 4)})
    ticks = []
    goals = {"kernel": GOAL, "tenseal": GOAL}
    (row,), machine = engines.run_engines("paper", goals, runs.BenchRun(41, 1), lambda: ticks.append(1))
    assert len(ticks) == 3
    assert engines.engine_runs(2) == 3 * 3
    assert row["max_abs_error"] == 0
    assert row["speedup"] == row["seconds"]["tenseal"] / row["seconds"]["all"]
    assert row["scaling"] == row["seconds"]["one"] / row["seconds"]["all"]
    assert row["least_memory"] == row["words"] / machine["words"]
    assert row["least_products"] == row["products"] / machine["products"]
    for part in ("encrypt", "decrypt"):
        seconds = row["client"][part]
        assert set(seconds) == {"all", "one", "tenseal", "speedup"}
        assert seconds["speedup"] == seconds["tenseal"] / seconds["all"]
    (line,) = engines.engine_table([row])
    assert line["encrypt speed-up"] == f"{row['client']['encrypt']['speedup']:.1f}"
    assert line["layer"] == "conv 4x4"
    assert "GB/s" in engines.peaks(machine)
    assert engines.peaks({}) == ""
    roofline(tmp_path / "roofline.png", [row], machine, "title")
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")


def test_memory_of_a_network() -> None:
    layers = runs.network_layers(SHAPES, "best", "cirencode", 8, GOAL)
    ticks, size = [], 3 * 8192 * 8
    for limit in (0, 2 * size):
        cache = WeightCache(limit)
        found = memory.network_memory(layers, "kernel", runs.BenchRun(41, 1), cache, lambda: ticks.append(1))
        assert found["weights"] == sum(layer.circuit.weights for layer in layers.values()) * size
        assert found["weights_kept"] == min(limit, found["weights"])
        assert found["peak"] > 1e8
    assert len(ticks) == 2 * 2 * len(layers)


def test_the_online_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "NETWORKS", {"a network": "anything"})
    shapes = {"blocks.1.expand": LinearShape(4, 4, 8, 16), "blocks.1.project": LinearShape(2, 2, 16, 8)}
    monkeypatch.setattr(online, "network_shapes", lambda _: shapes)
    depthwise = LinearShape(4, 4, 16, 16, 3, 2, 1, 16)
    assert [*online.online_shapes("").values()] == [shapes["blocks.1.expand"], depthwise, shapes["blocks.1.project"]]
    ticks = []
    rows = online.run_online((1, 8), runs.BenchRun(60, 2), lambda: ticks.append(1))
    assert len(ticks) == len(rows) == online.online_runs((1, 8))
    assert [row["name"] for row in rows[:2]] == ["a network, b = 1", "a network, b = 8"]
    assert rows[0]["values"] == 16 * 16 + 16 * 4 + 8 * 4
    assert rows[0]["weights_bytes"] == 8 * (8 * 16 + 16 * 9 + 16 * 8)
    assert rows[1]["weights_bytes"] == 8 * (8 * 16 * 22 // 64 + 16 * 9 + 16 * 8 * 22 // 64)
    assert all(0 < row["seconds_predicted"] < 1 for row in rows[:2])
    assert all(set(row["seconds"]) == {"all", "one"} for row in rows)
    assert len(online.online_table(rows)) == len(rows)
