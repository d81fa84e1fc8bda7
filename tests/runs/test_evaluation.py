import dataclasses
import functools
import itertools
from contextlib import contextmanager

import numpy as np
import pytest

import privcirnet.runs.answers as answers_module
from privcirnet.artifact.program import spectra
from privcirnet.artifact.summaries import plain
from privcirnet.errors import RuleError
from privcirnet.he.planning.cost import linear_cost, product_cost, square_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.interface import Meter
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.ring import modular
from privcirnet.runs.evaluation import Evaluation, evaluate
from privcirnet.runs.interactive import UNIT, Interactive
from privcirnet.runs.parties import RunOptions
from tests.he.networks import attention, bottleneck, network, random_image
from tests.he.protocol.rounds.test_floor import PROGRAM as EXACT

IMAGES = np.stack([random_image(network(), seed) for seed in range(3)])
LABELS = np.array([1, 2, 3])
CLEAR, ONE = RunOptions("cleartext"), (np.zeros(1, dtype=np.int64),) * 2


def program() -> Program:
    """Its first layer comes from a module, as a lowered network's would."""
    made = network()
    named = [dataclasses.replace(n, module="features.0") if n.name == "first" else n for n in made.nodes]
    return dataclasses.replace(made, nodes=tuple(named))


@functools.cache
def evaluation() -> Evaluation:
    return evaluate(Interactive(program(), profile=COUNTED), IMAGES, CLEAR)


def told(found: Evaluation, clear: np.ndarray = LABELS, labels: np.ndarray = LABELS) -> dict:
    """What is written of it."""
    return plain(found.summary(clear, labels))


def summary(clear: np.ndarray = LABELS, labels: np.ndarray = LABELS) -> dict:
    return told(evaluation(), clear, labels)


def test_every_step_of_the_protocol_is_right():
    found = summary()
    expected = [interpret(program(), image)["head"].ravel() for image in IMAGES]
    assert np.array_equal(evaluation().audited.clear, np.stack(expected))
    assert evaluation().wrong == [[], [], []]
    audit = found["audit"]
    assert (audit["logits_equal"], audit["wrong_nodes"], audit["unit"]) == (3, [], UNIT)
    assert found["phases"]["prepared"] == 0
    assert "server" not in found
    assert [layer["name"] for layer in found["layers"]] == ["features.0", "square", "second", "head"]


def test_both_parties_are_closed_in_the_end():
    parties = evaluate(Interactive(program()), IMAGES[:1], CLEAR).parties
    with pytest.raises(RuleError, match="a client must be open"):
        parties.client.keys()
    with pytest.raises(RuntimeError, match="a closed session handles nothing"):
        parties.server.handle(b"")


def test_without_a_profile_no_seconds_are_predicted():
    """A program that an older version made, or another party, has none."""
    found = dataclasses.replace(evaluation(), mode=Interactive(program())).summary(LABELS, LABELS)
    assert [layer.seconds_predicted for layer in found.layers] == [None] * 4


def test_operations_of_images_that_are_prepared_when_they_come_are_counted():
    run = told(evaluate(Interactive(EXACT, profile=COUNTED), IMAGES, CLEAR))
    assert "unit" not in run["audit"], "truncations are exact"
    layers = run["layers"]
    kinds = ["conv", "exact ReLU", "square", "exact truncation", "conv", "exact table", "gemm"]
    assert [layer["kind"] for layer in layers] == kinds
    assert all((found["rotations"], found["pmults"]) == _planned(found) for found in layers)
    assert all(found["rounds"] >= 1 for found in layers if found["encoding"] == "transfers")


def _planned(layer: dict) -> tuple[int, int]:
    return layer["rotations_planned"], layer["pmults_planned"]


def test_layers_are_described_by_their_plans():
    layers = summary()["layers"]
    linear = dict(zip((0, 2, 3), program().linear_nodes, strict=True))
    for place, (_, layer) in linear.items():
        found = layers[place]
        assert (found["kind"], found["encoding"], found["block_size"]) == (
            layer.shape.kind,
            "cirencode",
            layer.block_size,
        )
        assert (found["rotations_planned"], found["pmults_planned"]) == (layer.rotations, layer.pmults)
        assert (found["ciphertexts_up"], found["ciphertexts_down"]) == (layer.ciphertexts_in, layer.ciphertexts_out)
        assert found["seconds_predicted"] == linear_cost(layer, COUNTED, LINKS["local"]).total
    square = layers[1]
    assert (square["kind"], square["encoding"], square["block_size"]) == ("square", "slots", 1)
    assert square["rotations_planned"] == 0
    assert square["ciphertexts_up"] == square["ciphertexts_down"] == square["pmults"] == 1
    assert square["seconds_predicted"] == square_cost(8 * 4 * 4, COUNTED, LINKS["local"]).total
    assert all(layer["seconds"] > 0 for layer in layers)


@pytest.mark.parametrize("apart", [False, True])
def test_prepared_images_are_told_from_others(apart):
    """Two at a time of three images: the third's preparation is one, for none would be used after it."""
    made = evaluate(Interactive(program()), IMAGES, RunOptions("cleartext", apart=apart, prepare=2))
    assert made.wrong == [[], [], []]
    found = told(made)
    cost, phases = found["cost"], found["phases"]
    online, offline = phases["online"], phases["offline"]
    assert (phases["prepared"], phases["dropped"], [one.count for one in made.parties.ahead.done]) == (3, [], [2, 1])
    assert online["rounds"] == 2  # the image, with which the square's difference comes, and its answer
    assert online == cost
    before = [exchange for batch in made.parties.ahead.done for exchange in batch.traffic]
    assert offline["rounds"] == len(before) / 3
    assert offline["bytes_up"] == round(sum(exchange.up for exchange in before) / 3) > online["bytes_up"]
    assert online["links"]["wan"]["round_trips"] == 2 * LINKS["wan"].round_trip
    layers = {layer["name"]: layer for layer in found["layers"]}
    assert [layers[name]["rounds"] for name in layers] == [0, 1, 0, 0]
    assert all(layer["rotations"] == layer["rotations_planned"] for layer in layers.values())
    assert all(layer["pmults"] == layer["pmults_planned"] for layer in layers.values())
    assert all(layer["bytes_up"] > 0 and layer["seconds"] > 0 for layer in layers.values())


def test_kinds_of_layers():
    program = bottleneck()
    found = evaluate(Interactive(program, profile=COUNTED), random_image(program)[None], CLEAR)
    layers = {layer["name"]: layer for layer in told(found, *ONE)["layers"]}
    assert {name: layer["kind"] for name, layer in layers.items()} == {
        **{"side": "conv", "expand": "gemm", "square": "square", "depth": "depthwise", "project": "gemm"},
        "again": "gemm",
    }
    assert layers["depth"]["rotations"] == 0
    assert layers["depth"]["pmults"] == layers["depth"]["pmults_planned"] == layers["depth"]["ciphertexts_up"]
    assert found.wrong == [[]]


def test_products_are_described_by_their_plans():
    program = attention()
    found = evaluate(Interactive(program, profile=COUNTED), random_image(program)[None], CLEAR)
    layers = {layer["name"]: layer for layer in told(found, *ONE)["layers"]}
    assert list(layers) == ["patches", "all", "scores", "square", "gathered", "head"]
    for name in ("scores", "gathered"):
        operation, layer = next(node.operation for node in program.nodes if node.name == name), layers[name]
        both = operation.left, operation.right
        assert (layer["kind"], layer["encoding"], layer["block_size"]) == ("product", "cirencode", 1)
        assert layer["rotations"] == layer["rotations_planned"] == sum(factor.rotations for factor in both) > 0
        assert layer["pmults"] == layer["pmults_planned"] == sum(factor.pmults for factor in both)
        assert layer["ciphertexts_up"] == sum(factor.ciphertexts_in for factor in both)
        assert layer["ciphertexts_down"] == sum(factor.ciphertexts_out for factor in both)
        assert layer["seconds_predicted"] == product_cost(*both, COUNTED, LINKS["local"]).total
    assert found.wrong == [[]]


def test_bytes_are_those_of_the_messages():
    """In clear a ciphertext is n words of 8 bytes, a small square's those of its subring; a frame adds little."""
    found = summary()
    for way in ("up", "down"):
        each = [
            layer[f"ciphertexts_{way}"] * 8 * (128 if layer["kind"] == "square" else 8192) for layer in found["layers"]
        ]
        assert sum(each) < sum(layer[f"bytes_{way}"] for layer in found["layers"]) < sum(each) + 3000, "and online"
    exchanged = sum(layer["bytes_up"] + layer["bytes_down"] for layer in found["layers"])
    assert exchanged < found["cost"]["bytes_up"] + found["cost"]["bytes_down"] < exchanged + 2500
    assert found["bytes_keys"] == 8 * len(program().column_steps)


def test_predictions_and_accuracy():
    integer, encrypted = evaluation().audited.clear.argmax(1), evaluation().logits.argmax(1)
    labels = np.array([integer[0], integer[1], (integer[2] + 1) % 10])
    clear = np.array([labels[0], (labels[1] + 1) % 10, (labels[2] + 1) % 10])
    found = summary(clear, labels)
    assert found["images"] == 3
    assert found["top1_float"] == pytest.approx(100 / 3)
    assert found["audit"]["top1_clear"] == pytest.approx(200 / 3)
    assert found["top1_encrypted"] == pytest.approx(100 * (encrypted == labels).mean())
    assert found["audit"]["argmax_equal"] == (integer == encrypted).sum()
    assert found["predictions"] == [
        {
            **{"index": i, "label": labels[i], "float": clear[i], "clear": integer[i], "encrypted": encrypted[i]},
            "logits": (2.0**-8 * evaluation().logits[i]).tolist(),
            "logits_clear": (2.0**-8 * evaluation().audited.clear[i]).tolist(),
        }
        for i in range(3)
    ]


def test_logits_are_compared_in_real_units():
    found, result = summary(), evaluation()
    step, clear = 2.0 ** program().output.log_step, result.audited.clear
    largest = found["audit"]["logit_max_difference"]
    assert largest == step * np.abs(clear - result.logits).max()
    assert found["audit"]["logit_range"] == step * np.abs(clear).max() > 10 * largest


def test_seconds_are_a_typical_image_s():
    """The median without the first."""
    found, result = summary(), evaluation()
    assert found["seconds_images"] == [answer.seconds for answer in result.answers]
    assert min(found["seconds_images"]) > 0
    assert found["cost"]["seconds"] == pytest.approx(sum(found["seconds_images"][1:]) / 2)
    assert found["seconds_setup"] == result.parties.seconds_setup > 0
    for laps, (measured, _) in ((result.laps, result.parties.meters), (result.audited.laps, result.audited.meters)):
        assert len(laps.images.each) == 3
        for name, seconds in measured.seconds.items():
            assert sum(lap[name] for lap in laps.images.each) == pytest.approx(seconds)


def test_what_the_first_image_compiles_is_in_no_mean(monkeypatch):
    """Neither in an image's seconds, nor in a layer's, nor in their links, nor in a preparation's."""
    slow, first = 3600.0, []
    timed = Meter.time

    @contextmanager
    def time(meter, *nodes):
        with timed(meter, *nodes):
            yield
        if id(meter) not in first:  # as if this meter's first work had compiled its kernels
            first.append(id(meter))
            meter.seconds[nodes[0]] += slow

    monkeypatch.setattr(Meter, "time", time)
    for prepare in (0, 1):
        first.clear()
        made = evaluate(Interactive(program(), spectra(program())), IMAGES, RunOptions(prepare=prepare))
        found = told(made)
        assert sum(sum(meter.seconds.values()) for meter in made.audited.meters) > slow
        assert max(found["seconds_client"], found["audit"]["seconds_server"]) < slow / 10
        assert max(layer["seconds"] for layer in found["layers"]) < slow / 10


def test_links_are_predicted_from_what_was_measured():
    cost = summary()["cost"]
    assert cost["links"].keys() == LINKS.keys() - {"local"}
    assert cost["rounds"] == 7, "two around two of the preparation, and two online"
    for name, parts in cost["links"].items():
        assert parts["compute"] == cost["seconds"]
        assert parts["transfer"] == (cost["bytes_up"] + cost["bytes_down"]) / LINKS[name].bandwidth
        assert parts["round_trips"] == 7 * LINKS[name].round_trip
        assert parts["seconds"] == sum(parts[part] for part in ("compute", "transfer", "round_trips"))


@pytest.mark.parametrize("name", ["first", "second", "head"])
def test_a_tampered_weight_spectrum_is_found_where_it_is(name):
    """What follows may be wrong too: a residue that is no small number wraps in a truncation."""
    tampered, t = dict(spectra(program())), program().parameters.plain_modulus
    tampered[name] = tampered[name].copy()
    value = tampered[name].reshape(-1)[:1]
    value[:] = modular.add(value, np.uint64([1]), t)
    found = told(evaluate(Interactive(program(), tampered), IMAGES, CLEAR))["audit"]
    assert found["logits_equal"] == 0
    order = [node.name for node in program().nodes]
    assert order[min(order.index(wrong) for wrong in found["wrong_nodes"])] == name


def test_progress_is_called_for_each_exchange():
    steps = []
    found = evaluate(Interactive(program()), IMAGES[:2], CLEAR, steps.append)
    ends = [[step for step in steps if step.image == image] for image in range(2)]
    assert {step.name.split(",")[0] for step in steps} == {"preparation", "image", "square"}
    assert [each[-1].bytes for each in ends] == [found.summary(*(LABELS[:2],) * 2).cost.bytes] * 2
    assert all(a.bytes < b.bytes for each in ends for a, b in itertools.pairwise(each))


def test_unsuitable_images():
    with pytest.raises(RuleError, match="image"):
        evaluate(Interactive(program()), IMAGES[:1, :, :4], CLEAR)
    with pytest.raises(RuleError, match="image"):
        evaluate(Interactive(program()), IMAGES[:1] + 100, CLEAR)
    with pytest.raises(RuleError, match="there must be an image to evaluate: got 0"):
        evaluate(Interactive(program()), IMAGES[:0], CLEAR)


@pytest.mark.parametrize("end", ["image", "logits"])
def test_the_ends_of_an_inference_are_checked_too(end, monkeypatch):
    """Steps that follow from one another are not enough: they must start from the image and end in the logits."""
    original = answers_module.run

    def altered(client, session, image, progress):
        logits, traffic = original(client, session, image[:, ::-1].copy() if end == "image" else image, progress)
        return logits + (end == "logits"), traffic

    monkeypatch.setattr(answers_module, "run", altered)
    nodes = program().nodes
    result = evaluate(Interactive(program(), spectra(program())), IMAGES[:1], CLEAR)
    assert result.wrong == [[nodes[0].name if end == "image" else nodes[-1].name]]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["cleartext", "kernel"])
def test_two_processes_are_audited_like_one(engine):
    """The same exchanges and counts; what is measured beside them is there."""
    mode = Interactive(program(), spectra(program()))
    found, both = (evaluate(mode, IMAGES, RunOptions(engine, apart=apart)) for apart in (True, False))
    assert found.wrong == [[], [], []]
    assert np.array_equal(found.audited.clear, evaluation().audited.clear)
    apart, together = told(found), told(both)
    assert apart.keys() == together.keys()
    assert (apart["bytes_keys"], apart["audit"]["unit"]) == (together["bytes_keys"], together["audit"]["unit"])
    assert all(apart["cost"][name] == together["cost"][name] for name in ("rounds", "bytes_up", "bytes_down"))
    for mine, other in zip(apart["layers"], together["layers"], strict=True):
        assert {n: v for n, v in mine.items() if n != "seconds"} == {n: v for n, v in other.items() if n != "seconds"}
    assert (apart["audit"]["processes"], together["audit"]["processes"]) == (2, 1)
    assert (apart["memory"].keys(), together["memory"].keys()) == ({"client", "server"}, {"both"})
    assert min((apart["memory"] | together["memory"]).values()) > 1e6


def test_a_tampered_spectrum_in_the_other_process_is_found():
    tampered = dict(spectra(program()))
    tampered["second"] = tampered["second"] ^ np.uint64(1)
    assert (
        "second" in evaluate(Interactive(program(), tampered), IMAGES[:1], RunOptions("cleartext", apart=True)).wrong[0]
    )


@pytest.mark.parametrize("prepare", [0, 2])
def test_both_phases_of_an_exact_program_are_told_apart(prepare):
    """Whether an image was prepared before it came or when it came: what the online phase takes is the same."""
    made = evaluate(Interactive(EXACT, profile=COUNTED), IMAGES, dataclasses.replace(CLEAR, prepare=prepare))
    found = made.summary(LABELS, LABELS)
    phases, cost, whole = found.phases, found.cost, made.answers[-1]
    assert phases.prepared == (3 if prepare else 0)
    assert found.audit.counted
    assert phases.online.rounds == schedule_of(EXACT).rounds_online
    assert phases.offline.bytes > phases.online.bytes
    if prepare:
        assert cost == phases.online
    else:
        assert (cost.rounds, cost.bytes) == (len(whole.traffic), sum(whole.bytes))
        ahead = sum(round.up + round.down for round in whole.preparation.traffic)
        assert phases.online.bytes + ahead == cost.bytes
        assert 0 < phases.online.seconds < cost.seconds
    assert all(layer.seconds > 0 for layer in found.layers)


def test_the_bar_of_an_image_says_what_is_its_preparation():
    steps = []
    evaluate(Interactive(EXACT), IMAGES[:1], CLEAR, steps.append)
    before = [step.name.startswith("preparation, ") for step in steps]
    assert before.count(False) == schedule_of(EXACT).rounds_online
    assert before == sorted(before, reverse=True), "preparation first"
