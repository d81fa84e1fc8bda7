"""The search as a whole, on an untrained network: rules are obeyed, what is written can be read, pictures appear."""

import copy
import dataclasses
import json

import pytest
import torch
from torch import nn

from privcirnet.artifact.records import plan_composed, read_plan, read_profile, write_checkpoint
from privcirnet.blocksize_search.activations import OPTIONS
from privcirnet.blocksize_search.assignment import Solution, latency_range
from privcirnet.blocksize_search.candidates import Candidate
from privcirnet.blocksize_search.latency import worth_composing
from privcirnet.config import HEConfig, ModelConfig, QuantConfig, RecipeConfig, SearchRunConfig
from privcirnet.data import load
from privcirnet.errors import RuleError
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.profile import COUNTED
from privcirnet.models.mobilenetv2 import InvertedResidual
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from privcirnet.passes.surgery import polynomial_
from privcirnet.runs import competition, search
from privcirnet.runs.check import forecast
from privcirnet.train import stages
from privcirnet.train.network import checkpoint_of

DATA = load("digits")
EXACTLY = HEConfig(profile="counted", truncation="exact", nonlinear="exact")


@pytest.fixture(scope="module")
def run(digits_chain):
    return digits_chain / "train"


def config(run, **changes) -> SearchRunConfig:
    he = HEConfig(profile="counted", ring_degree=8192)
    return SearchRunConfig(**({"init": str(run), "samples": 128, "sweep": 5, "he": he} | changes))


@pytest.fixture(scope="module")
def stored(run):
    return search.search(config(run), DATA)


@pytest.fixture
def found(stored):
    return stored.result


def test_the_plan_is_within_its_budget_and_better_than_uniform(found):
    assert found.solution.latency <= found.budget == found.uniform[4].latency
    assert found.solution.sensitivity <= found.uniform[4].sensitivity
    assert found.measured.samples == 128
    assert len(found.front) >= 2
    assert search.summary(found)["predicted"]["rounds"] == len(found.figures)


def test_a_result_prints_as_a_table_of_its_layers(found):
    head, *rows, last, plans = str(found).splitlines()
    assert head.split() == ["layer", "b", "units", "sensitivity"], "of a counted profile"
    assert {row.split()[0]: int(row.split()[1]) for row in rows} == found.block_sizes
    assert last.split()[:3] == ["budget", f"{found.budget:.2f}", "units"]
    measured = dataclasses.replace(found, profile=dataclasses.replace(found.profile, name="this machine"))
    head, *_, last, _ = str(measured).splitlines()
    assert head.split()[2] == "ms"
    assert last.split()[:3] == ["budget", f"{1e3 * found.budget:.2f}", "ms"]
    assert len({len(line) for line in [head, *rows, last]}) == 1
    assert plans.startswith("plans by divergence before training: ")
    assert all(f"{score:.3g} {name}" in plans for name, score in found.scores.items())
    assert "plans" not in str(dataclasses.replace(found, candidates=[]))


def test_no_plan_is_worse_than_uniform_by_the_score(found):
    """Each sensitivity proposes a plan, and the best of all by their divergence is taken."""
    names = {"kfac", "energy", "fisher", "uniform"}
    assert set(found.scores) <= names
    assert len(found.scores) >= 2
    winner = next(iter(found.scores))
    by_name = {each.name: each for each in found.candidates}
    assert found.solution == by_name[winner].solution
    assert all(found.scores[winner] <= score for score in found.scores.values())
    assert all(each.solution.latency <= found.budget * (1 + 1e-9) for each in found.candidates)


def test_a_score_of_none_takes_the_first_proposal(run, found):
    fast = search.search(config(run, score="none"), DATA).result
    assert not fast.scores
    alone = search.search(config(run, score="none", sensitivity="fisher"), DATA).result
    assert fast.solution == alone.solution, "the Fisher information's, as in the paper"


def test_refining_lowers_the_score(run, found):
    refined = search.search(config(run, refine=2.0), DATA).result
    assert min(refined.scores.values()) <= min(found.scores.values())
    assert refined.solution.latency <= refined.budget * (1 + 1e-9)


def test_a_race_chooses_and_continues_where_it_was_killed(run, found, tmp_path, monkeypatch):
    racing = config(run, race=2, recipe=RecipeConfig(batch_size=16, distillation=0.5), out=str(tmp_path))
    trained, train_for_ = [], competition.train_for_

    def killed_at_the_second(steps, *arguments):
        trained.append(steps)
        if len(trained) == 2:
            raise KeyboardInterrupt
        train_for_(steps, *arguments)

    monkeypatch.setattr(competition, "train_for_", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        search.search(racing, DATA)
    raced = search.search(racing, DATA).result
    assert raced.scores == pytest.approx(found.scores)
    assert set(raced.raced) == set(found.scores)
    assert len(trained) == 1 + len(raced.candidates), "the first plan's score was there, the second's was not"
    by_name = {each.name: each for each in raced.candidates}
    assert raced.solution == by_name[next(iter(raced.raced))].solution
    assert list(raced.raced.values()) == sorted(raced.raced.values())
    assert "plans by divergence after the race: " in str(raced)
    assert {each["raced"] for each in search.summary(raced)["candidates"]} == set(raced.raced.values())
    other = dataclasses.replace(racing, race=1)
    assert search.search(other, DATA).result.raced != raced.raced


def test_a_plan_of_extremes_is_warned_of():
    latency = {f"l{i}": {1: 4.0, 2: 2.0, 4: 1.0, 8: 0.5, 16: 0.3} for i in range(20)}
    sizes = dict(zip(latency, (1, 1, 16, 16, 4) * 4, strict=True))
    candidate = Candidate("fisher", Solution(sizes, 0.0, 0.0, "Optimal"))
    with pytest.warns(UserWarning, match="got 8 of 20 layers at their smallest size and 8 at their largest; race=40"):
        search._warn_of_extremes(candidate, latency)
    search._warn_of_extremes(dataclasses.replace(candidate, raced=0.1), latency)


def test_a_budget_may_be_on_the_seconds_of_the_server(found, run):
    """Over a slow link hardly any of the others depend on block sizes, so both kinds of budgets differ."""
    he = HEConfig(profile="counted", ring_degree=8192, link="wan")
    on_all, on_server = (search.search(config(run, he=he, budget_on=kind), DATA).result for kind in ("all", "server"))
    sizes = on_server.uniform[4].block_sizes
    assert on_server.budget == pytest.approx(sum(on_server.figures[name][b].server for name, b in sizes.items()))
    assert on_all.budget == pytest.approx(sum(on_all.figures[name][b].seconds for name, b in sizes.items()))
    assert on_server.solution.latency <= on_server.budget < on_all.budget
    assert search.summary(on_server)["latency"] == on_server.latency != on_all.latency
    assert found.latency == search.summary(found)["latency"]


def test_a_search_may_be_for_what_is_left_when_the_image_comes(run):
    """Each objective's budget is on its own seconds, of which a linear layer's with the image are the server's alone."""
    online, prepared, total = (
        search.search(config(run, objective=kind, sensitivity="weights"), DATA).result
        for kind in ("online", "prepared", "total")
    )
    sizes = online.uniform[4].block_sizes
    rows = [online.figures[name][b] for name, b in sizes.items()]
    assert online.budget == pytest.approx(sum(one.online for one in rows))
    assert prepared.budget == pytest.approx(sum(one.seconds for one in rows))
    assert total.budget == pytest.approx(online.budget + prepared.budget)
    assert online.solution.latency <= online.budget
    assert search.summary(online)["predicted"]["online"] == pytest.approx(online.solution.latency)


def test_the_other_phase_may_be_capped(found, run):
    cap = 0.7 * search.figures_of(found.figures, found.uniform[1].block_sizes).online
    capped = search.search(config(run, budget=1e9, online_s=cap, sensitivity="weights"), DATA).result
    assert search.figures_of(capped.figures, capped.solution.block_sizes).online <= cap
    assert capped.solution.sensitivity > 0
    with pytest.raises(RuleError, match="the cap on online seconds must be at least the least assignment's"):
        search.search(config(run, budget=1e9, online_s=1e-12), DATA)
    with pytest.raises(RuleError, match="the cap on seconds of preparation must be at least"):
        search.search(config(run, objective="online", prepared_s=1e-12), DATA)


def test_plans_are_for_this_network_alone(stored, found, run, tmp_path):
    search.write(stored, tmp_path)
    plan = tmp_path / "plan.json"
    assert read_plan(plan, model="digits_resnet", checkpoint=stored.checkpoint) == found.solution.block_sizes
    assert len(list((tmp_path / "plans").glob("*units.json"))) == len(found.front)
    assert json.loads(plan.read_text())["latency_predicted_s"] == found.solution.latency
    for name in ("pareto.png", "plans.png", "sensitivity.png", "blocks.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    start = RecipeConfig(stage="finetune", init=str(run), plan=str(plan))
    assert stages.begin(start, QuantConfig(), ModelConfig(), DATA).block_sizes == found.solution.block_sizes
    torch.manual_seed(1)
    other = stages.begin(RecipeConfig(), QuantConfig(), ModelConfig(), DATA)
    write_checkpoint(tmp_path / "checkpoint.safetensors", checkpoint_of(other, "train"))
    with pytest.raises(RuleError, match="a plan must be for this checkpoint: got"):
        stages.begin(dataclasses.replace(start, init=str(tmp_path)), QuantConfig(), ModelConfig(), DATA)
    with pytest.raises(
        RuleError, match=r"a plan must be for this model: got .*plan.json for model digits_resnet, used"
    ):
        read_plan(plan, model="lola_mnist")


def test_rules_are_obeyed(found, run):
    settings = {"pinned": ["down:2"], "equal": [["conv*"]], "budget": "60%", "sensitivity": "weights"}
    ruled = search.search(config(run, **settings), DATA).result
    sizes = ruled.solution.block_sizes
    assert sizes["down"] == 2
    assert sizes["conv1"] == sizes["conv2"]
    assert ruled.budget == pytest.approx(0.6 * found.uniform[1].latency)
    assert (ruled.measured.samples, ruled.measured.stable) == (0, None)
    most = 1e-6 * search.figures_of(found.figures, found.uniform[1].block_sizes).memory
    capped = search.search(config(run, memory_mb=0.5 * most, budget=1e9, sensitivity="weights"), DATA).result
    assert search.figures_of(capped.figures, capped.solution.block_sizes).memory <= 0.5e6 * most
    assert capped.solution.sensitivity > 0


@pytest.mark.parametrize("changes", [{"pinned": ["up:2"]}, {"equal": [["up*"]]}])
def test_a_pattern_without_a_layer_is_refused_before_the_machine_is_measured(monkeypatch, run, changes):
    monkeypatch.setattr(search, "find_profile", lambda *_, **__: pytest.fail("measured"))
    with pytest.raises(RuleError, match="a pattern must match a searched layer: got up"):
        search.search(config(run, **changes), DATA)


def test_a_network_that_explodes_is_refused_before_the_machine_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(search, "find_profile", lambda *_, **__: pytest.fail("measured"))
    start = stages.begin(RecipeConfig(), QuantConfig(), ModelConfig(), DATA)
    with torch.no_grad():
        for parameter in start.model.parameters():
            parameter.mul_(1e20)
    write_checkpoint(tmp_path / "checkpoint.safetensors", checkpoint_of(start, "train"))
    message = "trained before a search: got NaN or infinity for 128 of 128 training images, from .* on"
    with pytest.raises(RuleError, match=message):
        search.search(config(tmp_path), DATA)
    search_weights = config(tmp_path, sensitivity="weights")
    with pytest.raises(pytest.fail.Exception, match="measured"):
        search.search(search_weights, DATA)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": "150%"}, "budget must be seconds, a block size or a share: got '150%'; use 0.4, b4 or 50%"),
        ({"budget": "8"}, "budget must be seconds, a block size or a share: got '8'"),
        ({"sensitivity": "hessian"}, "sensitivity must be a known one: got 'hessian'"),
        ({"solver": "gurobi"}, "solver must be a known one"),
        ({"traffic_mb": -1.0}, "traffic_mb must be at least 0: got -1"),
        ({"objective": "offline"}, "objective must be a known one: got 'offline'"),
        ({"online_s": -1.0}, "online_s must be at least 0: got -1"),
    ],
)
def test_settings_are_checked(run, changes, message):
    with pytest.raises(RuleError, match=message):
        config(run, **changes)


def test_a_budget_out_of_reach_is_said_before_anything_is_measured(run):
    with pytest.raises(RuleError, match=r"latency budget must be at least the fastest assignment's: got .* units"):
        search.search(config(run, budget=1e-12), DATA)


def test_a_budget_beyond_the_dense_network_is_told(run):
    meant = r"a budget of .* compresses nothing: the dense network takes .*; did you mean budget=b4\?"
    with pytest.warns(UserWarning, match=meant):
        search._budget(config(run, budget=4.0), {"a": {1: 2.0, 4: 1.0}}, counted=False)


def test_layers_are_priced_at_the_parameters_that_the_program_gets(run):
    """A small network fits into n = 8192, whatever ring the profile was measured at."""
    model, image = stages.load_network(str(run), DATA), next(DATA.sampled(1, 1))[0]
    wide = dataclasses.replace(COUNTED, name="measured", ring_degree=16384, seconds={**COUNTED.seconds, "rotate": 1.5})
    he = HEConfig(profile="calibrate", truncation="exact", nonlinear="exact")
    assert search._at_the_program(model, image, config(run, he=he), wide).ring_degree == 8192


def test_what_was_measured_is_kept_if_the_budget_is_out_of_reach(run, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "find_profile", lambda *_, **__: COUNTED)
    asked = config(run, budget=1e-12, he=HEConfig(profile="calibrate"), out=str(tmp_path / "found"))
    kept = tmp_path / "found" / "profile.json"
    with pytest.raises(RuleError, match=rf"; allow at least .* units; he\.profile={kept} is what was measured now$"):
        search.search(asked, DATA)
    assert read_profile(kept) == COUNTED


def test_a_search_may_compose_layers():
    """Over a slow link a round saved makes a budget possible that no block sizes alone can meet."""
    torch.manual_seed(0)
    blocks = InvertedResidual(8, 8, 1, 2, "square"), InvertedResidual(8, 8, 1, 2, "square")
    ends = nn.Conv2d(1, 8, 3, padding=1), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(8, 10)
    model = nn.Sequential(ends[0], *blocks, *ends[1:]).eval()
    he = HEConfig(profile="counted", link="wan")
    apart = search.search_in(model, DATA, SearchRunConfig(sensitivity="weights", sweep=0, he=he), COUNTED)
    fastest, _ = latency_range(apart.latency)
    settings = {"budget": fastest - LINKS["wan"].round_trip, "sensitivity": "weights", "sweep": 4, "he": he}
    with pytest.raises(RuleError, match="at least the fastest assignment's"):
        search.search_in(model, DATA, SearchRunConfig(**settings), COUNTED)
    together = search.search_in(model, DATA, SearchRunConfig(compose=True, **settings), COUNTED)
    assert (apart.composed, together.composed) == ((), ("2.expand",))
    assert together.solution.latency <= together.budget
    assert together.block_sizes["1.project"] == together.block_sizes["2.expand"]
    predicted = together.predicted()
    assert predicted.seconds == pytest.approx(together.solution.latency)
    assert predicted.rounds == len(together.figures) - 1
    assert search.summary(together)["composed"] == ["2.expand"]
    assert "2.expand, composed" in str(together)
    sizes = {name: b for name, b in together.block_sizes.items() if b > 1}
    fused = fuse(circulant_(model, sizes), composed=together.composed)
    assert fused.get_submodule("2.expand").in_channels == 16 + 8
    again = worth_composing(model, torch.zeros(1, 1, 8, 8), COUNTED, LINKS["wan"])
    assert again == ["2.expand"]


def test_a_search_may_choose_what_activations_become(tmp_path):
    """Block sizes and activations share a budget; what costs more than a ReLU and serves it worse is never taken."""
    named = ModelConfig("resnet18_cifar", {"width": 8, "image_size": 8})
    network = stages.begin(RecipeConfig(), QuantConfig(), named, DATA)
    write_checkpoint(tmp_path / "checkpoint.safetensors", checkpoint_of(network, "train"))
    settings = {"activations": ["aespa", "identity"], "block_sizes": [1, 4], "sweep": 3}
    settings |= {"objective": "online", "budget": "80%", "samples": 64, "pinned": ["stem_act:own"], "he": EXACTLY}
    asked = config(tmp_path, **settings)
    stored = search.search(asked, DATA)
    found, kinds = stored.result, stored.result.activations
    assert kinds["stem_act"] == "own"
    assert set(kinds.values()) == {"own", "identity"}
    assert {len(kinds), len(found.block_sizes)} == {17, 21}
    assert found.solution.latency <= found.budget == pytest.approx(0.8 * found.uniform[1].latency)
    for row in (found.figures["layer1.0.act1"], found.figures["layer4.1.act2"]):
        own, square, nothing = (row[OPTIONS[kind]] for kind in ("own", "aespa", "identity"))
        assert nothing.seconds < own.seconds < square.seconds
        assert (nothing.rounds, own.rounds, square.rounds) == (1, 2, 3)
    assert {row.split()[0]: row.split()[1] for row in str(found).splitlines()}["stem_act"] == "own"
    facts = search.summary(found)
    assert facts["activations"]["stem_act"]["becomes"] == "own"
    assert facts["activations"].keys() == kinds.keys()
    assert facts["layers"].keys() == facts["sensitivity"].keys() == found.block_sizes.keys()
    search.write(stored, tmp_path)
    assert read_plan(tmp_path / "plan.json", model="resnet18_cifar") == found.block_sizes
    start = RecipeConfig(stage="replace", init=str(tmp_path), plan=str(tmp_path / "plan.json"))
    mixed = stages.begin(start, QuantConfig(), ModelConfig(), DATA)
    kept = [name for name, module in mixed.model.named_modules() if isinstance(module, nn.ReLU)]
    assert kept == [name for name, kind in kinds.items() if kind == "own"]
    write_checkpoint(tmp_path / "checkpoint.safetensors", checkpoint_of(mixed, "replace"))
    image = torch.rand(1, 1, 8, 8)
    assert torch.equal(stages.load_network(str(tmp_path), DATA)(image), mixed.model.eval()(image))
    nothing = copy.deepcopy(network.model)
    polynomial_(nothing, image, dict.fromkeys(kinds, "identity"))
    for what in ("seconds", "sent", "online", "online_sent"):
        none, some, every = (
            getattr(forecast(fuse(each), (1, 8, 8), EXACTLY, COUNTED, 1), what)
            for each in (nothing, mixed.model, network.model)
        )
        assert none < some < every


def test_a_search_over_activations_needs_some(run):
    with pytest.raises(RuleError, match="a search over activations needs some that run exactly: got none"):
        search.search(config(run, activations=["aespa"]), DATA)


def test_composed_layers_are_in_the_plan(tmp_path, found):
    solution = dataclasses.replace(found.solution, composed=("conv2",))
    stored = search.StoredSearch("digits_resnet", "", dataclasses.replace(found, solution=solution))
    search.write(stored, tmp_path)
    assert plan_composed(tmp_path / "plan.json") == ("conv2",)


@pytest.mark.parametrize(
    ("budgets", "names"), [([1.2, 0.45], ["1200", "450"]), ([4.52e-4, 4.5e-4], ["0.452", "0.450"]), ([], [])]
)
def test_plans_of_a_sweep_have_names_of_their_own(stored, tmp_path, budgets, names):
    measured = dataclasses.replace(stored.result.profile, name="this machine")
    front = [(budget, stored.result.solution) for budget in budgets]
    result = dataclasses.replace(stored.result, front=front, profile=measured)
    search.write(dataclasses.replace(stored, result=result), tmp_path)
    assert {path.name for path in (tmp_path / "plans").glob("*")} == {f"{name}ms.json" for name in names}
    search.write(stored, tmp_path)
    assert not list((tmp_path / "plans").glob("*ms.json")), "those of the papers' units are in their place"


def test_every_plan_of_a_sweep_has_the_block_sizes_of_its_budget(stored, tmp_path) -> None:
    search.write(stored, tmp_path)
    plans = sorted((tmp_path / "plans").glob("*"), key=lambda path: float(path.name.removesuffix("units.json")))
    wanted = [solution.block_sizes for _, solution in sorted(stored.result.front, key=lambda each: each[0])]
    assert [read_plan(path) for path in plans] == wanted
    assert any(sizes != stored.result.block_sizes for sizes in wanted)
