"""A comparison from end to end: every cell has a plan within its budget, a run, and a place in the table."""

import dataclasses
import json
from pathlib import Path

import pytest

from papers.pareto import cells, prepare, table
from papers.pareto.config import METHODS, Cell
from papers.pareto.paid import PAID
from papers.pruning.masks_file import read_masks
from privcirnet.artifact.records import read_checkpoint, read_json, read_plan
from privcirnet.blocksize_search.assignment import uniform_latency
from privcirnet.cli import train
from privcirnet.errors import RuleError
from tests.papers.pareto.case import DATA, config, dense


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    """A complete comparison."""
    root = tmp_path_factory.mktemp("pareto")
    cells.run(config(dense(root / "train"), root / "out"), DATA)
    return root / "out"


def facts(out: Path, name: str) -> dict:
    return read_json(out / "cells" / name / cells.CELL, "a cell", "none")


@pytest.mark.slow
def test_every_cell_is_within_its_budget_and_trained(done):
    latency = prepare.read(done).latency("server")
    names = {path.name for path in (done / "cells").iterdir()}
    integer = {f"{method}-b4-server" for method in ("weights", "loss_aware", "kfac", "energy", "searched")}
    assert names == {"dense-b1", "uniform-b4", "pruning-b4-server"} | integer
    for name in names - {"dense-b1"}:
        found = facts(done, name)
        assert found["server_s"] <= uniform_latency(latency, 4) * (1 + 1e-9), name
        summary = read_json(done / "runs" / found["run"] / "0" / "summary.json", "a run", "none")
        assert (summary["stage"], summary["epochs"], summary["test_images"]) == ("finetune", 1, len(DATA.test_labels))
    assert facts(done, "dense-b1")["server_s"] == pytest.approx(uniform_latency(latency, 1))


def test_all_cells_have_the_same_start_and_recipe(done):
    runs = [json.loads(path.read_text())["config"] for path in (done / "runs").glob("*/*/summary.json")]
    recipes = [{key: value for key, value in run["recipe"].items() if key != "plan"} for run in runs]
    assert len(runs) >= 4
    assert all(recipe == recipes[0] for recipe in recipes)
    assert recipes[0]["init"] == recipes[0]["teacher"] == str(done.parent / "train")


def test_pruned_weights_are_zero_in_the_checkpoint_and_the_others_are_trained(done):
    cell, start = facts(done, "pruning-b4-server"), read_checkpoint(done.parent / "train" / "checkpoint.safetensors")
    masks = read_masks(done / "cells" / "pruning-b4-server" / "plan.json")
    tuned = read_checkpoint(done / "runs" / cell["run"] / "0" / "checkpoint.safetensors")
    assert tuned.tensors.keys() == start.tensors.keys()
    gone = sum(int((~mask).sum()) for mask in masks.values())
    assert gone / sum(mask.size for mask in masks.values()) == pytest.approx(cell["sparsity"])
    assert cell["sparsity"] > 0.1
    for name, mask in masks.items():
        before, after = (held.tensors[f"{name}.weight"] for held in (start, tuned))
        assert not after[~mask].any(), name
        assert (after[mask] != before[mask]).mean() > 0.9, name


def test_the_table_names_every_method_and_the_papers_margins(done):
    text = table.draw(done)
    plans = {facts(done, path.name)["run"] for path in (done / "cells").iterdir()}
    assert f"{len(plans)} of {len(plans)} plans are trained" in text
    assert "4.2 (MobileNetV2, ImageNet), 4.1 (ResNet-18, Tiny ImageNet), 12 (ViT, Tiny ImageNet)" in text
    top1 = {
        method: next(row.top1 for row in table.collect(done) if row.facts["method"] == method) for method in METHODS
    }
    server, every = (line for line in text.splitlines() if line.startswith("| b = 4"))
    for other in ("uniform", "pruning"):
        assert f"| {top1['searched'] - top1[other]:+.2f} |" in server
        assert f"| {top1['searched'] - top1[other]:+.2f} |" in every
    assert "**seconds in all: server, client, network** (budgets are of seconds of the server)" in text
    assert (done / "pareto.md").read_text() == text
    assert (done / "pareto.csv").read_text().count("\n") == 1 + 2 * len(METHODS)
    assert (done / "pareto.png").read_bytes().startswith(b"\x89PNG")


def test_the_searched_plan_is_one_of_those_that_compete(done):
    """By its score, after a race of one step here; the others' cells have the same plans."""
    found = facts(done, "searched-b4-server")
    of = {"fisher": "loss_aware-b4-server", "uniform": "uniform-b4"}
    name = found["chosen"].replace("loss_aware", "fisher")
    assert found["run"] == facts(done, of.get(name, f"{name}-b4-server"))["run"]
    assert len(json.loads((done / "cells" / "searched-b4-server" / "race.json").read_text())["scores"]) >= 2


def test_nothing_complete_is_made_again(done, monkeypatch):
    monkeypatch.setattr(train, "train", None)
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*.json")}
    cells.run(config(done.parent / "train", done), DATA)
    assert {path: path.stat().st_mtime_ns for path in done.rglob("*.json")} == before


def test_other_settings_are_refused(done):
    changed = config(done.parent / "train", done, samples=65, scores="relative")
    changed.recipe = dataclasses.replace(changed.recipe, epochs=2)
    got = r"recipe.epochs=2 after \d, samples=65 after \d+, scores=relative after magnitude for .*"
    with pytest.raises(RuleError, match=f"continued with its settings: got {got}; give the"):
        cells.run(changed, DATA)


def test_what_is_complete_is_drawn_and_an_interrupted_cell_continues(tmp_path, monkeypatch):
    settings = config(dense(tmp_path / "train"), tmp_path / "out", method="uniform")
    with monkeypatch.context() as patch:
        patch.setattr(train, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cells.run(settings, DATA)
    assert "0 of 1 plans are trained" in table.draw(tmp_path / "out")
    assert not (tmp_path / "out" / "pareto.png").exists()
    run = tmp_path / "out" / "runs" / facts(tmp_path / "out", "uniform-b4")["run"] / "0"
    assert (run / "resume.pt").is_file()
    cells.run(settings, DATA)
    text = table.draw(tmp_path / "out")
    assert "1 of 1 plans are trained" in text
    assert text.count("| b = 4 |") == 2, "both kinds of seconds"
    assert not (run / "resume.pt").exists()


def test_equal_plans_share_a_run_and_a_budget_out_of_reach_is_written_down(tmp_path):
    prepared = prepare.prepare(settings := config(dense(tmp_path / "train"), tmp_path / "out"), DATA)
    for method in ("uniform", "dense"):
        cells.run_cell(settings, Cell(method, 1), prepared, DATA)
    assert len({facts(tmp_path / "out", f"{method}-b1")["run"] for method in ("uniform", "dense")}) == 1
    figures = {n: {b: type(f)() if b == 4 else f for b, f in row.items()} for n, row in prepared.figures.items()}
    free = prepare.Prepared(**vars(prepared) | {"figures": figures})
    cells.run_cell(settings, Cell("pruning", 4, "server"), free, DATA)
    found = facts(tmp_path / "out", "pruning-b4-server")
    assert (found["run"], "within reach of pruning" in found["problem"]) == ("", True)
    assert "| out of reach |" in table.draw(tmp_path / "out")


def test_seeds_have_runs_of_their_own_and_the_table_says_how_far_they_lie_apart(tmp_path):
    settings = config(dense(tmp_path / "train"), tmp_path / "out", method="uniform", seeds=[0])
    settings = dataclasses.replace(
        settings,
        recipe=dataclasses.replace(
            settings.recipe, start="fisher", clip_gradient=0.0, learning_rate=3e-3, weight_decay=0.05
        ),
    )
    cells.run(settings, DATA)
    assert "half of what" not in table.draw(tmp_path / "out")
    cells.run(dataclasses.replace(settings, seeds=[0, 1]), DATA)
    runs = tmp_path / "out" / "runs" / facts(tmp_path / "out", "uniform-b4")["run"]
    tops = [read_json(runs / seed / "summary.json", "a run", "none")["top1"] for seed in ("0", "1")]
    assert tops[0] != tops[1]
    text = table.draw(tmp_path / "out")
    assert f"-> {sum(tops) / 2:.2f} +- {abs(tops[0] - tops[1]) / 2:.2f} % (" in text
    assert "half of what the seeds lie apart" in text
    assert f",{sum(tops) / 2:.2f},{abs(tops[0] - tops[1]):.2f},2," in (tmp_path / "out" / "pareto.csv").read_text()


def test_what_users_pay_is_forecast_for_every_plan_but_pruned_ones(done):
    dense_, blocks, pruned = (facts(done, name) for name in ("dense-b1", "uniform-b4", "pruning-b4-server"))
    assert not PAID.keys() & pruned.keys()
    assert blocks["aespa_s"] < dense_["aespa_s"]
    assert all(found["aespa_online_s"] < found["aespa_s"] for found in (dense_, blocks))
    assert all(0 < found["exact_online_s"] < found["exact_s"] for found in (dense_, blocks))
    assert f"| uniform, b = 4 | {blocks['aespa_s']:.3g} |" in table.draw(done)


def test_plans_are_for_this_network(done):
    prepared = prepare.read(done)
    plan = done / "cells" / "loss_aware-b4-server" / "plan.json"
    assert set(read_plan(plan, model=prepared.model, checkpoint=prepared.checkpoint)) == set(prepared.figures)


def test_a_comparison_starts_from_a_dense_network_and_is_there_when_it_is_drawn(done, tmp_path):
    circulant = done / "runs" / facts(done, "uniform-b4")["run"] / "0"
    with pytest.raises(RuleError, match=r"a comparison must start from a dense network: got \d+ layers; give the run"):
        cells.run(config(circulant, tmp_path), DATA)
    with pytest.raises(RuleError, match=r"a comparison must exist: got .*; run a cell first"):
        table.draw(tmp_path / "nowhere")
