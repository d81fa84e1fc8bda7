"""A dry run of the chain: everything that verbs will refuse, what they change, what an image will take."""

import pytest
import torch
from torch import nn

import privcirnet as pc
from privcirnet.runs.check import left_to_replace
from privcirnet.runs.memory import needed_bytes
from tests.api.samples import convolutional, images_and_labels
from tests.nn.networks import Written, assert_unchanged, snapshot

IMAGES, LABELS = images_and_labels(8)


def checked(model: nn.Module, **settings):
    return pc.check(model, IMAGES, profile="counted", progress=False, **{"activation": "aespa"} | settings)


def test_a_network_that_runs_has_its_changes_and_costs_and_stays_as_it_was():
    model = convolutional()
    before = snapshot(model)
    found = checked(model, failure_bits=12)
    assert_unchanged(model, before)
    assert found.changes == pc.polynomial_(model, IMAGES)
    assert found.refusals == ()
    dense, circulant = found.forecasts
    assert (dense.block_size, circulant.block_size) == (1, 4)
    assert circulant.seconds < dense.seconds
    assert circulant.weights < dense.weights < dense.memory
    lines = str(found).splitlines()
    assert lines[0] == "polynomial_ replaces:"
    assert lines[1].startswith("  2: ReLU -> Aespa2d (values differ")
    assert "no step refuses the network: it can be trained, compressed and run encrypted" in lines
    assert lines[-3].split()[:6] == ["block", "size", "units", "MB", "sent", "rounds"]


def test_by_default_it_is_the_road_of_compile():
    """Only the pool changes, and no value does."""
    model = convolutional()
    found = pc.check(model, IMAGES, profile="counted", progress=False)
    assert [(change.path, change.effect) for change in found.changes] == [("7", "")]
    assert found.refusals == ()
    assert str(found).splitlines()[0] == "compile replaces:"


def test_costs_are_those_of_the_program_that_is_compiled():
    """Where the values ask for the same parameters as usual ones, everything predicted is what it will be.

    Bounds are measured: usual values are no proof, and t is wider where bounds are proved.
    """
    model, settings = convolutional(), {"failure_bits": 12, "ring_degree": 8192, "bounds": "measured"}
    (dense,) = checked(model, block_size=1, **settings).forecasts
    pc.polynomial_(model, IMAGES)
    for _ in range(20):
        model.train()(IMAGES)
    quantized = pc.quantize(pc.fuse(model.eval()), IMAGES)
    program = pc.compile(quantized, IMAGES, profile="counted", progress=False, **settings).integer
    assert dense.ring_degree == program.parameters.ring_degree
    assert dense.memory == needed_bytes(program)


def unfit() -> nn.Module:
    """With convolutions that pad by a map's own values, a pool whose windows differ, and an operation without a polynomial."""
    padding = {"padding": 1, "padding_mode": "reflect"}
    layers = {"first": nn.Conv2d(3, 4, 3, **padding), "second": nn.Conv2d(4, 4, 3, **padding)}
    forward = lambda net, x: net.fc(net.pool(net.second(net.first(x))).softmax(1).mean((2, 3)))  # noqa: E731
    return Written(forward, **layers, pool=nn.AdaptiveMaxPool2d(3), fc=nn.Linear(4, 2))


def test_everything_that_will_be_refused_is_said_at_once():
    found = checked(unfit())
    said = [(refusal.verb, refusal.error.got) for refusal in found.refusals]
    assert [verb for verb, _ in said] == ["polynomial_", "polynomial_", "search", "search"]
    assert said[0][1] == "pool (AdaptiveMaxPool2d)"
    assert said[1][1] == "softmax (softmax)"
    assert [got.split(":")[0] for _, got in said[2:]] == ["first", "second"]
    assert found.forecasts == ()
    assert str(found).startswith(
        "polynomial_ refuses: every operation must have a polynomial form: got pool (AdaptiveMaxPool2d)"
    )


def test_norms_that_fold_into_nothing_get_layers():
    """Surgery gives them layers, of a network that was written by hand too."""
    norms = nn.Sequential(nn.BatchNorm2d(3), pc.Square(), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 2))
    assert not any(isinstance(each, nn.BatchNorm2d) for each in pc.quantize(norms.eval(), IMAGES).modules())
    assert checked(norms).refusals == ()


def test_a_search_names_every_layer_without_an_encrypted_form():
    with pytest.raises(pc.RuleError, match="a convolution must pad with zeros") as refused:
        pc.search(unfit(), (IMAGES, LABELS), profile="counted", progress=False)
    assert [each.got.split(":")[0] for each in refused.value.each] == ["first", "second"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"failure": 12}, "a setting of check must be a known one: got failure"),
        ({"block_size": 3}, "a uniform block size must be a power of two: got 3"),
        ({"activation": "relu"}, "the activation must be a polynomial, or the network's own: got 'relu'"),
        ({"profile": "nowhere.json"}, "nowhere.json"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(pc.RuleError, match=message):
        pc.check(convolutional(), IMAGES, **{"profile": "counted", "progress": False, **settings})


def test_it_wants_a_network_and_images():
    with pytest.raises(pc.RuleError, match="a network must be a torch module: got str"):
        checked("resnet18")
    with pytest.raises(pc.RuleError, match=r"must take the images: got \(8, 8\).*; give images\[None\] for one image"):
        pc.check(convolutional(), IMAGES[0], profile="counted", progress=False)
    with pytest.raises(pc.RuleError, match=r"a network must take the images: got .*double"):
        pc.check(convolutional(), IMAGES.double(), profile="counted", progress=False)


def test_what_is_left_to_replace_is_one_line():
    """For the scripts, which train networks that are replaced later or never."""
    image = IMAGES[:1]
    said = "two-party computation will run 2 (ReLU), 3 (MaxPool2d), 6 (ReLU) as they are; polynomials are faster"
    assert left_to_replace(convolutional(), image).startswith(said)
    overlapping = convolutional()
    overlapping[7] = nn.Sequential(nn.Softsign(), overlapping[7])
    assert left_to_replace(overlapping, image).startswith("not encrypted as they are: 2 (ReLU), 3 (MaxPool2d), 6 (R")
    polynomial = convolutional()
    pc.polynomial_(polynomial, image)
    assert left_to_replace(polynomial, image) == ""
    said = left_to_replace(unfit(), image)
    assert said.startswith("no encrypted form, not even by recipe=replace: every operation must have a polynomial form")
    assert "\n" not in said


@pytest.mark.parametrize("head", [None, nn.Softmax(1), nn.LogSoftmax(1)], ids=str)
def test_a_softmax_at_the_end_is_said_to_be_left_out(head):
    last = (lambda net, x: net.head(x)) if head else (lambda net, x: x.softmax(1))
    forward = lambda net, x: last(net, net.last(net.flat(net.act(net.conv(x)))))  # noqa: E731
    layers = {"conv": nn.Conv2d(3, 4, 3), "act": nn.ReLU(), "flat": nn.Flatten(), "last": nn.Linear(144, 3)}
    network = Written(forward, **layers, **({"head": head} if head else {})).eval()
    images = torch.rand(4, 3, 8, 8)
    found = pc.check(network, images, activation="own", profile="counted", progress=False)
    assert "use no softmax at the end: the class of the logits is the same" in str(found.refusals[0])
    if head:
        with pytest.raises(pc.RuleError, match="no softmax at the end: the class of the logits is the same"):
            pc.compile(pc.quantize(pc.fuse(network), images), images, profile="counted", progress=False)


def test_a_network_that_is_random_in_evaluation_is_told_from_one_that_is_misread():
    network = Written(
        lambda net, x: net.last(nn.functional.dropout(net.flat(net.act(net.conv(x))), 0.5)),
        conv=nn.Conv2d(3, 4, 3),
        act=nn.ReLU(),
        flat=nn.Flatten(),
        last=nn.Linear(144, 3),
    ).eval()
    refusal = checked(network).refusals[0]
    assert str(refusal.error).endswith("others the second time, in evaluation; use nn.Dropout for F.dropout")


def test_weights_that_are_not_finite_are_refused_as_by_every_verb():
    model = convolutional()
    with torch.no_grad():
        model[0].weight[0, 0, 0, 0] = torch.nan
    (refusal,) = checked(model).refusals
    assert str(refusal.error).startswith("weights must be finite: got NaN or infinity in 0.weight")


def test_a_circulant_network_has_a_row_of_its_own_blocks():
    model = convolutional()
    pc.circulant_(model, {"0": 1, "4": 4, "9": 2})
    found = pc.check(model, IMAGES, profile="counted", progress=False)
    assert [forecast.block_size for forecast in found.forecasts] == [4]
    assert str(found).splitlines()[-1].split()[0] == "4"
