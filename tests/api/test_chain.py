"""From a network of a user's own to encrypted answers, by the public names alone."""

import dataclasses
import math
import re
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import privcirnet as pc
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operations import Input
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.quantizers import quantizer_of
from privcirnet.passes.quantize import input_step
from privcirnet.runs import memory
from tests.api.samples import convolutional, images_and_labels

IMAGES, LABELS = images_and_labels()


@pytest.fixture(scope="module")
def trained():
    model = convolutional()
    pc.polynomial_(model, IMAGES)
    pc.fit(model, (IMAGES, LABELS), epochs=6, batch_size=16, progress=False)
    return model


@pytest.fixture(scope="module")
def plan(trained):
    return pc.search(trained, (IMAGES, LABELS), budget=pc.uniform(4), profile="counted", samples=64, progress=False)


@pytest.fixture(scope="module")
def quantized(trained, plan):
    pc.circulant_(trained, plan.block_sizes)
    pc.fit(trained, (IMAGES, LABELS), epochs=3, batch_size=16, progress=False)
    return pc.quantize(pc.fuse(trained), IMAGES)


@pytest.fixture(scope="module")
def program(quantized, plan):
    return pc.compile(quantized, IMAGES, profile=plan.profile, progress=False)


def test_a_plan_is_within_its_budget_and_sets_the_blocks(plan, quantized):
    assert plan.solution.latency <= plan.budget == plan.uniform[4].latency
    assert set(plan.block_sizes) == {"0", "4", "9"}
    assert max(plan.block_sizes.values()) > 1
    assert {name: block_size_of(quantized.get_submodule(name)) for name in plan.block_sizes} == plan.block_sizes
    assert len(str(plan).splitlines()) == 6
    assert min(plan.scores.values()) == plan.scores[next(iter(plan.scores))] <= plan.scores.get("uniform", math.inf)


def test_a_budget_is_in_seconds(plan):
    dense = convolutional()
    loose = pc.search(
        dense, (IMAGES, LABELS), budget=1.1 * plan.budget, profile=plan.profile, samples=16, progress=False
    )
    assert loose.budget == 1.1 * plan.budget
    assert loose.solution.latency <= loose.budget


def test_a_budget_out_of_reach_keeps_what_was_measured(monkeypatch):
    measured = []
    monkeypatch.setattr("privcirnet.api.settings._measured", {})
    monkeypatch.setattr("privcirnet.api.settings.find_profile", lambda *_, **__: measured.append(1) or COUNTED)
    dense, settings = convolutional(), {"samples": 16, "progress": False}
    with pytest.raises(pc.RuleError, match="latency budget must be at least the fastest assignment's"):
        pc.search(dense, (IMAGES, LABELS), budget=1e-9, **settings)
    assert pc.search(dense, (IMAGES, LABELS), **settings).budget > 1e-9
    assert measured == [1]


def test_encrypted_answers_are_the_integer_networks_and_near_the_quantized_ones(program, quantized):
    logits = program(IMAGES[:3], check=True)
    assert logits.shape == (3, 2)
    with torch.no_grad():
        expected = quantized.eval()(IMAGES[:3])
    assert torch.allclose(logits, expected, atol=0.05 * expected.abs().max().item())
    assert torch.equal(logits.argmax(1), expected.argmax(1))
    integers = [
        interpret(program.integer, image)[program.integer.output.name] for image in program.integers(IMAGES[:3])
    ]
    assert torch.allclose(logits, torch.tensor(program.logits(np.stack(integers).reshape(3, 2))).float(), atol=0.05)


def test_a_program_knows_its_images_and_parameters(program, quantized):
    assert program.image == (3, 8, 8)
    assert program.bounds == "proved"
    low, high = program.pixel_range
    assert low == -(2.0 ** math.ceil(math.log2(IMAGES.abs().max()))) == -4
    assert high == -low - 2.0 ** input_step(quantized)
    assert program.parameters.ring_degree >= 8192
    assert str(program).startswith(f"{len(program.integer.nodes)} nodes, 3 encrypted layers, proved bounds; n = ")
    assert program.integers(IMAGES[:2]).dtype == np.int64
    rounded = program.integers(IMAGES[:2]) * 2.0 ** input_step(quantized)
    assert np.abs(rounded - IMAGES[:2].numpy()).max() <= 2.0 ** (input_step(quantized) - 1)


def test_memory_is_looked_at_before_an_image_runs_and_weights_may_stay_encoded_for_none(program, monkeypatch):
    bare = program(IMAGES[:1], weights_gb=0)
    assert torch.allclose(bare, program(IMAGES[:1]), atol=0.1 * bare.abs().max().item())
    assert f"encoded weights of {memory.weight_bytes(program.integer) / 1e9:.2g} GB" in str(program)
    monkeypatch.setattr(memory, "machine_bytes", lambda: 10**8)
    message = r"must fit the memory: got 0\.\d GB of 0\.1 GB"
    for check in (False, True):
        with pytest.raises(pc.RuleError, match=message):
            program(IMAGES[:1], check=check)
    program(IMAGES[:1], engine="cleartext")
    with pytest.raises(pc.RuleError, match="weights_gb must be 0 or more: got -1"):
        program(IMAGES[:1], weights_gb=-1)


def test_a_saved_program_gives_the_same_answers(program, tmp_path):
    program.save(tmp_path / "program", classes=["left", "right"])
    loaded = pc.load(tmp_path / "program")
    assert set(loaded.spectra) == {node.name for node, _ in loaded.integer.linear_nodes}
    assert loaded.pixel_range == program.pixel_range
    assert torch.allclose(loaded(IMAGES[:1]), program(IMAGES[:1]), atol=0.05)
    with pytest.raises(pc.RuleError, match="folder must be new or hold a program"):
        program.save(tmp_path / "program", replace=False)


def test_a_program_says_how_far_encrypted_logits_are_from_the_quantized_network(program, quantized, tmp_path):
    """It is measured when the program is made, and kept with it, as is the profile."""
    found = program.rehearsal
    assert found.images == len(IMAGES)
    assert f"encrypted logits {found.difference:.1%} off the quantized network's" in str(program)
    few = IMAGES[:8]
    with torch.no_grad():
        want = quantized(few)
    far = (program(few, engine="cleartext") - want).abs().amax(1) / want.abs().amax(1)
    assert found.difference / 3 < far.median() < 3 * found.difference
    program.save(tmp_path / "program")
    again = pc.load(tmp_path / "program")
    assert (again.rehearsal, again.profile, str(again)) == (found, program.profile, str(program))
    silent = pc.compile(quantized, IMAGES, profile=program.profile, progress=False, rehearsed_images=0)
    silent.save(tmp_path / "program")
    assert pc.load(tmp_path / "program").rehearsal is None
    assert "encrypted logits" not in str(silent)
    with pytest.raises(pc.RuleError, match=r"rehearsed_images must be at least 0: got -1; use 128"):
        pc.compile(quantized, IMAGES, profile=program.profile, progress=False, rehearsed_images=-1)


@pytest.mark.parametrize(("differ", "warned"), [(0, False), (9, False), (10, True)])
def test_a_run_warns_of_classes_that_are_not_the_quantized_networks(program, differ, warned):
    doubted = dataclasses.replace(program, rehearsal=dataclasses.replace(program.rehearsal, differ=differ))
    said = pytest.warns(UserWarning, match=r"of 96 classes differ; .*exact") if warned else nullcontext()
    with said:
        doubted(IMAGES[:1], engine="cleartext")


def test_a_rehearsal_that_is_none_is_refused(program, tmp_path):
    for rehearsal in ("none", {"images": "many"}, [1]):
        program.save(tmp_path / "program", rehearsal=rehearsal)
        with pytest.raises(pc.RuleError, match=r"a rehearsal must be complete: got .*manifest"):
            pc.load(tmp_path / "program")


def test_the_two_parties_take_what_compile_returns(program):
    server = pc.Server(program.integer, "cleartext")
    client = pc.Client(server.greeting(), "cleartext")
    session = server.session(client.keys())
    exchange = client.infer(program.integers(IMAGES[:1])[0])
    message, answer = next(exchange), None
    while answer is None:
        try:
            message = exchange.send(session.handle(message))
        except StopIteration as finished:
            answer = finished.value
    logits = torch.tensor(program.logits(answer).reshape(1, 2)).float()
    assert torch.allclose(logits, program(IMAGES[:1], engine="cleartext"), atol=0.05)


def test_a_value_that_is_not_the_integer_networks_is_named(program, monkeypatch):
    from privcirnet.runs import interactive

    monkeypatch.setattr(interactive, "wrong_nodes", lambda program, values: ["conv"])
    with pytest.raises(pc.RuleError, match="integer network's: got another from conv on for image 0"):
        program(IMAGES[:1], check=True, engine="cleartext")


@pytest.mark.parametrize("check", [False, True])
def test_a_result_that_is_too_wide_is_no_answer(program, monkeypatch, check):
    from privcirnet.he.protocol.rounds import answer

    monkeypatch.setattr(answer, "width", lambda values: 99)
    with pytest.raises(pc.RuleError, match=r"must have at most \d+ bits, .*: got 99 bits"):
        program(IMAGES[:1], check=check, engine="cleartext")


def test_images_beyond_measured_bounds_are_counted_and_found(plan):
    squares = [layer for _ in range(3) for layer in (nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), pc.Square())]
    quantized = pc.quantize(pc.fuse(nn.Sequential(*squares, nn.Flatten(), nn.Linear(12, 2))), IMAGES)
    images = torch.cat([IMAGES, 2000 * IMAGES[:1]])
    with pytest.warns(UserWarning, match=f"1 of {len(images)} images go beyond the measured bounds: they would be"):
        program = pc.compile(quantized, images, bounds="measured", profile=plan.profile, progress=False)
    with pytest.raises(pc.RuleError, match=r"for image 1; run it again: .*; an image is beyond the measured bounds if"):
        program(images[-2:], check=True, engine="cleartext")


def test_bounds_can_be_proved_and_pixels_without_sign(plan):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), pc.Square(), nn.Flatten(), nn.Linear(4 * 36, 2))
    images = (255 * torch.rand(8, 3, 8, 8)).round() / 255
    quantized = pc.quantize(pc.fuse(model), images)
    assert input_step(quantized) == -8
    program = pc.compile(quantized, images, bounds="proved", profile=plan.profile, progress=False, failure_bits=4)
    assert program.bounds == "proved"
    assert program.integer.nodes[0].operation == Input(0, 511)
    assert np.array_equal(program.integers(images), np.floor(images.double().numpy() * 256 + 0.5))
    exact = pc.compile(
        quantized, images.double(), bounds="proved", profile=plan.profile, progress=False, failure_bits=4
    )
    assert exact.integer.nodes == program.integer.nodes, "images may have any floating-point type"


def test_exact_truncation_gives_the_quantized_networks_logits(plan):
    """Bit for bit, in both parties' exact arithmetic; and there is nothing for guard bits to do."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), pc.Square(), nn.Flatten(), nn.Linear(144, 2))
    model(IMAGES)
    quantized = pc.quantize(pc.fuse(model), IMAGES)
    program = pc.compile(quantized, IMAGES, truncation="exact", profile=plan.profile, progress=False)
    truth = quantized.double().eval()(IMAGES.double())
    for engine in ("cleartext", "kernel"):
        assert torch.equal(program(IMAGES[:2], engine=engine).double(), truth[:2].detach())
    assert re.search(r"2 +square +144 +polynomial\n2 +truncation +144 +exact\n", str(program))
    with pytest.raises(pc.RuleError, match=r"answer must be a known one: got 'rounded'; use one of logits, top1"):
        pc.compile(quantized, IMAGES, answer="rounded", profile=plan.profile, progress=False)


def test_a_networks_own_activations_run_exactly(plan, tmp_path):
    """ReLU, ReLU6, GELU and max pools as the quantized network has them, bit for bit, without another training.

    The depthwise layer's outputs are of different sizes, each with its own step.
    """
    torch.manual_seed(0)
    first = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    first = *first, nn.Conv2d(8, 8, 1), nn.GELU()
    last = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU6(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 4)
    model = nn.Sequential(*first, *last)
    with torch.no_grad():
        last[0].weight.mul_(2.0 ** -torch.arange(8).view(8, 1, 1, 1))
    model(IMAGES)
    quantized = pc.quantize(pc.fuse(model), IMAGES)
    assert 2 <= quantizer_of(quantized.get_submodule("6")).exponents.max() <= 7
    program = pc.compile(quantized, IMAGES, profile=plan.profile, progress=False)
    truth = quantized.double().eval()(IMAGES.double()).detach()
    for engine in ("cleartext", "kernel"):
        assert torch.equal(program(IMAGES[:2], engine=engine).double(), truth[:2])
    for row in (
        r"0 +3 x 3 convolution, 3 -> 8 +512 +encrypted",
        r"3 +maximum +[0-9,]+ +exact, of [0-9]+ bits",
        r"2 +ReLU +[0-9]+ +exact, of [0-9]+ bits",
        r"5 +gelu +[0-9]+ +exact, of [0-9]+ bits",
    ):
        assert re.search(f"\n{row}\n", repr(program))
    program = pc.compile(quantized, IMAGES, answer="top1", profile=plan.profile, progress=False)
    assert program.rehearsal.differ == program.rehearsal.difference == 0
    program.save(tmp_path / "program")
    assert pc.load(tmp_path / "program").rehearsal == program.rehearsal
    assert torch.equal(program(IMAGES[:2], check=True), nn.functional.one_hot(truth[:2].argmax(1), 4).float())
    with pytest.raises(pc.RuleError, match=r"answer=top1 needs .*truncation=exact: got random"):
        pc.compile(quantized, IMAGES, nonlinear="refused", answer="top1", progress=False)


def test_a_given_step_is_kept():
    assert input_step(pc.quantize(pc.fuse(convolutional_with_squares()), IMAGES, -3)) == -3
    assert input_step(pc.quantize(pc.fuse(convolutional_with_squares()), IMAGES)) == -6


def convolutional_with_squares() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), pc.Square(), nn.Flatten(), nn.Linear(144, 2))


def test_images_that_do_not_fit_a_program(program):
    for images in (IMAGES[:, :, :4], IMAGES[0, 0]):
        with pytest.raises(pc.RuleError, match=r"images must be \(N, 3, 8, 8\), as compiled: got shape"):
            program(images)
    with pytest.raises(pc.RuleError, match="there must be images: got none"):
        program(IMAGES[:0])
    with pytest.raises(pc.RuleError, match=r"pixels must be in \[-.*\], as compiled: got \["):
        program(10 * IMAGES)
    with pytest.raises(pc.RuleError, match="images must be finite: got NaN or infinity"):
        program(IMAGES / 0)


def test_options_of_a_call_are_checked(program):
    with pytest.raises(pc.RuleError, match=r"images must be real numbers \(N, C, H, W\): got NoneType"):
        program(None)
    with pytest.raises(pc.RuleError, match="weights_gb must be 0 or more: got many"):
        program(IMAGES[:1], weights_gb="many")


def test_images_may_be_an_array_and_a_client_wants_integers(program):
    one = program(IMAGES[:1], engine="cleartext")
    array = program(IMAGES[:1].double().numpy(), engine="cleartext")
    assert isinstance(array, np.ndarray)
    assert np.allclose(array, one, atol=0.05)
    with pytest.raises(pc.RuleError, match=r"images must be real numbers \(N, C, H, W\): got could not convert"):
        program.integers([["x"]])
    assert np.array_equal(program.integers(IMAGES.clone().requires_grad_()), program.integers(IMAGES.numpy()))
    half = IMAGES.bfloat16()  # NumPy has no such type
    assert np.array_equal(program.integers(half), program.integers(half.float()))
    client = pc.Client(pc.Server(program.integer, "cleartext", program.spectra).greeting(), "cleartext")
    with pytest.raises(pc.RuleError, match="an image must be a NumPy array of integers: got Tensor"):
        next(client.infer(IMAGES[0]))
    client.close()
    for used in (client.keys, lambda: next(client.infer(program.integers(IMAGES[:1])[0]))):
        with pytest.raises(pc.RuleError, match="a client must be open: got a closed one; make another"):
            used()


def test_what_cannot_be_compiled(quantized, trained, plan):
    for images, message in [
        (IMAGES[:, :, :4], r"a network must get images of the size it was traced at: got \(3, 4, 8\) for \(3, 8, 8\)"),
        (IMAGES[:0], r"images must be a tensor \(N, C, H, W\), N at least 1, .*: got shape \(0, 3, 8, 8\)"),
        (IMAGES / 0, "images must be finite: got NaN or infinity"),
    ]:
        with pytest.raises(pc.RuleError, match=message):
            pc.compile(quantized, images, profile=plan.profile)
        with pytest.raises(pc.RuleError, match=message):
            pc.quantize(pc.fuse(trained), images)
    with pytest.raises(
        pc.RuleError, match=r"a setting of compile must be a known one: got marginbits; did you mean margin_bits=\?"
    ):
        pc.compile(quantized, IMAGES, marginbits=3)
    with pytest.raises(pc.RuleError, match=r"^bounds must be a known one: got 'seen'"):
        pc.compile(quantized, IMAGES, bounds="seen")


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (lambda: pc.fit("net", (IMAGES, LABELS)), "a network must be a torch module: got str"),
        (lambda: pc.search("net", (IMAGES, LABELS)), "a network must be a torch module: got str"),
        (lambda: pc.polynomial_("net", IMAGES), "a network must be a torch module: got str"),
        (lambda: pc.fuse("net"), "a network must be a torch module: got str"),
        (
            lambda: pc.polynomial_(nn.Identity(), [1]),
            r"images must be a tensor \(N, C, H, W\), N at least 1, signals \(N, C, L\) or a table \(N, F\): got list",
        ),
        (lambda: pc.circulant_(nn.Linear(8, 8), 4), "by the layers' names: got int"),
        (lambda: pc.search(nn.Linear(8, 8), (IMAGES, LABELS), budget="4"), "got '4'; use 0.4, b4 or 50%"),
        (lambda: pc.uniform("4"), "block_size must be a positive integer: got '4'; use 4"),
        (lambda: pc.fraction(2), r"a share of the latency must be in \(0, 1\]: got 2; use 0.5"),
        (lambda: pc.search(nn.Linear(8, 8), (IMAGES, LABELS), block_sizes=4), "got block_sizes=4; give a list"),
        (lambda: pc.fuse(nn.Linear(8, 8), composed="0"), "composed layers must be given by their names: got str"),
        (
            lambda: pc.quantize(pc.fuse(nn.Sequential(nn.Conv2d(3, 8, 1))), ["x"]),
            r"images must be a tensor .*: got list",
        ),
        (
            lambda: pc.quantize(pc.fuse(nn.Conv2d(3, 8, 1)), IMAGES, 1 / 16),
            "input_log_step must be an integer .*: got i",
        ),
        (
            lambda: pc.quantize(pc.fuse(nn.Conv2d(3, 8, 1)), IMAGES, 50),
            r"input_log_step must be an integer in \[-16, 16\] .*: got input_log_step=50",
        ),
        (lambda: pc.quantize(pc.fuse(nn.Conv2d(3, 8, 1)), IMAGES, quantile=2), "quantile in .*=None, quantile=2; give"),
        (
            lambda: pc.quantize(pc.fuse(nn.Conv2d(3, 8, 1)), IMAGES, weight_bits=8.0),
            r"weight bits must be in .*: got 8.0",
        ),
        (lambda: pc.check(nn.Conv2d(3, 8, 1), IMAGES, failure_bits=-1), r"failure_bits must be in \[0, 128\]: got -1"),
        (lambda: pc.Server("program"), "a server must have a program of integers: got str"),
    ],
)
def test_an_argument_of_another_kind_is_one_line(verb, message):
    with pytest.raises(pc.RuleError, match=message):
        verb()


VERBS = {
    "search": lambda network: pc.search(network, (IMAGES, LABELS), profile="counted", progress=False),
    "quantize": lambda network: pc.quantize(pc.fuse(network), IMAGES),
    "compile": lambda network: pc.compile(network, IMAGES, profile="counted", progress=False),
}


@pytest.mark.parametrize("verb", VERBS)
def test_weights_must_be_finite(verb):
    model = convolutional_with_squares()
    network = pc.quantize(pc.fuse(model), IMAGES) if verb == "compile" else model
    with torch.no_grad():
        next(network.parameters()).view(-1)[0] = torch.nan
    with pytest.raises(pc.RuleError, match="weights must be finite: got NaN or infinity in 0"):
        VERBS[verb](network)


def test_a_search_refuses_weights_that_layers_share():
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.Flatten(), nn.Linear(192, 2))
    model[1].weight = model[0].weight
    with pytest.raises(pc.RuleError, match=r"each layer must have weights of its own: got 0.weight = 1.weight"):
        pc.search(model, (IMAGES, LABELS), profile="counted", progress=False)


def test_a_search_takes_a_loader():
    """Of all images, in other batches and another order: the same information."""
    model, loader = convolutional_with_squares(), DataLoader(TensorDataset(IMAGES, LABELS), 40)
    settings = {"profile": "counted", "progress": False}
    found, expected = (pc.search(model, images, **settings).measured for images in (loader, (IMAGES, LABELS)))
    assert found.samples == expected.samples == 96
    assert found.values["4"][2] == pytest.approx(expected.values["4"][2], rel=0.2) != 0


def test_a_search_needs_a_network_that_is_trained():
    model = convolutional_with_squares()
    with torch.no_grad():
        model[4].weight.mul_(3e38)
    with pytest.raises(
        pc.RuleError,
        match="a network must be trained before a search: got NaN or infinity for 96 of 96 training images",
    ):
        pc.search(model, (1e3 * IMAGES, LABELS), profile="counted", progress=False)


@pytest.mark.parametrize("given", [lambda *pair: pair, lambda *pair: DataLoader(TensorDataset(*pair), 40)])
def test_a_search_looks_at_all_its_images_before_it_measures(given, monkeypatch):
    monkeypatch.setattr("privcirnet.api.search.profile_for", lambda *_, **__: pytest.fail("it measures the machine"))
    images = IMAGES.clone()
    images[91] *= 1e20
    message = "got NaN or infinity for 1 of 96 training images, from 2 on; train it longer, or with outlier_penalty=0.1"
    with pytest.raises(pc.RuleError, match=message):
        pc.search(convolutional_with_squares(), given(images, LABELS), progress=False)


def test_a_config_and_keywords_say_the_same(plan, quantized):
    """Keywords stand for fields of the config that is given, and win over it."""
    config = pc.SearchConfig(budget=pc.uniform(8), block_sizes=[1, 4, 8], samples=16)
    found = pc.search(
        convolutional(), (IMAGES, LABELS), config, budget=pc.uniform(4), profile="counted", progress=False
    )
    assert found.budget == found.uniform[4].latency
    assert set(found.uniform) == {1, 4, 8}
    most = pc.search(
        convolutional(), (IMAGES, LABELS), config, budget=pc.fraction(0.6), profile="counted", progress=False
    )
    assert most.budget == 0.6 * found.uniform[1].latency
    alone = pc.CompileConfig(answer="top1", truncation="exact")
    for given in ({"config": alone}, {"answer": "top1", "config": pc.CompileConfig(truncation="exact")}):
        program = pc.compile(quantized, IMAGES, **given, profile=plan.profile, progress=False)
        assert program.integer.answer == "top1"


def test_the_module_lists_its_verbs():
    assert {"fit", "search", "compile", "uniform", "__version__"} <= set(dir(pc))
    assert "importlib" not in dir(pc)
    with pytest.raises(AttributeError, match=r"no attribute 'run'"):
        _ = pc.run
