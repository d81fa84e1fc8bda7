"""A residual network on bootstrapped CKKS, from a network to a summary; encrypted at a toy ring degree."""

import json
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from privcirnet.artifact.summaries import plain
from privcirnet.config import HEConfig
from privcirnet.data import load
from privcirnet.errors import RuleError
from privcirnet.he.ckks import hoisting
from privcirnet.he.ckks.bootstrapping import Bootstrapping
from privcirnet.he.ckks.client import CkksClient
from privcirnet.he.ckks.program import CkksProgram, encoded_bytes, predicted
from privcirnet.he.protocol.one_message import ckks
from privcirnet.models import lola_digits, resnet20_cifar
from privcirnet.runs.ckks import Ckks
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.export import ckks_facts, ckks_program
from privcirnet.runs.parties import RunOptions
from tests.he import ckks_served
from tests.he.ckks.test_bootstrapping import toy

LABELS = np.array([0, 1])


@pytest.fixture(scope="module")
def program():
    """INSECURE: n = 1024. Images are those of the test of lowering, in steps of 2^-16."""
    with ckks_served.insecure():
        yield ckks_served.program(), ckks_served.images()


class Bars:
    """What bars were shown, and how far they went."""

    def __init__(self) -> None:
        self.seen = []

    @contextmanager
    def __call__(self, description, total):
        done = []

        def advance(note="", by=1, to=None):
            done.append(to if to is not None else (done[-1] if done else 0) + by)

        yield advance
        assert done == sorted(done)
        self.seen.append((description, total, done[-1] if done else 0))


def told(known, images, how=None) -> dict:
    """What is written of a run."""
    labels = LABELS[: len(images)]
    return json.loads(json.dumps(plain(evaluate(Ckks(known), images, how).summary(labels, labels))))


def test_an_encrypted_run_says_how_right_it_is_and_what_it_took(program):
    bars, (known, images) = Bars(), program
    mode = Ckks(known)
    found = evaluate(mode, images, bar=bars)
    summary = json.loads(json.dumps(plain(found.summary(LABELS, LABELS))))
    cost, audit, circuit = summary["cost"], summary["audit"], summary["audit"]["circuit"]
    assert (audit["argmax_equal"], audit["beyond"], cost["rounds"]) == (2, [], 1)
    assert 19 < audit["logits_bits"] == min(audit["logits_bits_images"]) < 40
    assert "phases" not in summary
    assert audit["logit_max_difference"] <= 2 ** -circuit["precision_bits"] * known.sums.answer
    assert (circuit["bootstrappings"], circuit["levels"]) == (5, known.bootstrapping.parameters.levels)
    figures = cost["bytes_up"], cost["bytes_down"], summary["bytes_keys"], summary["seconds_setup"]
    assert min(*figures, *circuit["processor_seconds_predicted"].values()) > 0
    assert 1.5 < circuit["bytes_keys_server"] / summary["bytes_keys"] < 3, "seeds travel instead of half of a key"
    rows = summary["layers"]
    assert sum(row["rotations"] for row in rows) == circuit["operations"]["rotate"] > 0
    assert sum(row["seconds"] for row in rows) == pytest.approx(audit["seconds_server"], rel=0.2)
    assert [row["name"] for row in rows if row["kind"] == "bootstrapping"] == [
        f"{known.sums.nodes[place].name} bootstrapping" for place in mode.circuit.circuit.placement.bootstrapped
    ]
    assert [bar[1:] for bar in bars.seen] == [(0, 0), *((n, n) for n in (40, circuit["rotation_keys"] + 1))]


def test_the_twin_in_clear_counts_what_the_server_does(program, monkeypatch):
    known, images = program
    servers = []
    made = ckks.CkksServer
    monkeypatch.setattr(ckks, "CkksServer", lambda *given: servers.append(made(*given)) or servers[0])
    encrypted = told(known, images[:1], RunOptions(weights_gb=0))
    audit, operations = encrypted["audit"], encrypted["audit"]["circuit"]["operations"]
    assert (audit["circuit"]["bytes_weights"], audit["argmax_equal"]) == (0, 1), "weights are encoded for every image"
    clear = told(known, images[:1], RunOptions("cleartext"))
    assert clear["audit"]["circuit"]["operations"] == operations
    for name in ("rotate", "multiply", "conjugate"):
        assert servers[0].counts[name] == operations[name]
    assert (clear["bytes_keys"], clear["audit"]["argmax_equal"]) == (0, 1)
    assert clear["audit"]["circuit"]["bytes_keys_server"] == 0
    sent = known.sums.answer * np.array(clear["predictions"][0]["logits_clear"])
    assert sent.shape == (4,)


def test_a_weight_that_changed_is_noticed(program, monkeypatch):
    known, images = program
    honest = hoisting.EncodedMap.weights
    monkeypatch.setattr(hoisting.EncodedMap, "weights", lambda *given: honest(*given)[::-1].copy())
    assert told(known, images[:1])["audit"]["logits_bits"] < 5


def test_an_image_beyond_the_bounds_is_named(program):
    known, images = program
    for factor in (4, 100):
        audit = told(known, np.stack([images[0], factor * images[1]]), RunOptions("cleartext"))["audit"]
        assert audit["beyond"] == [1]
        assert audit["logits_bits_images"][0] > 19 > audit["logits_bits_images"][1]


def test_what_cannot_run_is_refused_before_anything_is_encrypted(program, monkeypatch):
    known, images = program

    def never(*given):
        raise AssertionError("a key was made")

    monkeypatch.setattr(CkksClient, "evaluation_keys", never)
    with pytest.raises(RuleError, match=r"keys must fit keys_gb = 0.01: got 0.0\d GB"):
        evaluate(Ckks(known), images, RunOptions(keys_gb=0.01))
    monkeypatch.setattr(ckks, "machine_bytes", lambda: 10_000_000)
    with pytest.raises(RuleError, match=r"must fit the memory: got 0.1 GB for 0.0 GB"):
        evaluate(Ckks(known), images)
    short = CkksProgram(
        known.network, known.scales, Bootstrapping(toy(spare=3), to_coefficients=2, to_slots=2), ckks_served.LOG_STEP
    )
    with pytest.raises(RuleError, match=r"must take at most 3 levels: got 6 up to 'layer2.0.act2'"):
        evaluate(Ckks(short), images)
    with pytest.raises(RuleError, match=r"must have the program's shape \(3, 8, 8\): got \(2, 3, 8, 4\)"):
        evaluate(Ckks(known), images[..., :4])


def test_the_secret_key_is_forgotten_whatever_happens(program, monkeypatch):
    known, images = program
    closed, close = [], CkksClient.close

    def noted(self):
        close(self)
        closed.append(self)

    monkeypatch.setattr(CkksClient, "close", noted)
    monkeypatch.setattr(ckks.CkksInferenceServer, "load_keys", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate(Ckks(known), images)
    assert len(closed) == 1


def test_weights_that_are_not_kept_are_not_counted(program):
    known, _ = program
    kept, none = known.rehearsed(1.0), known.rehearsed(0)
    assert kept.circuit.weight_bytes > none.circuit.weight_bytes == 0
    assert encoded_bytes(none.counting) == encoded_bytes(kept.counting) > kept.circuit.weight_bytes
    expected = predicted(none.circuit, none.counting)
    assert expected.keys() >= {"stem", "layer3.0.downsample", "layer1.0.act2 bootstrapping"}


def test_what_is_exported_is_secure_and_says_what_it_takes():
    """At n = 65536, in clear; nothing is said of weight and pixel bits, which are BFV's."""
    data = load("digits")
    torch.manual_seed(0)
    small = {"in_chans": 1, "width": 4, "blocks": 1, "image_size": 8}
    model = resnet20_cifar(activation="aespa", **small).train()
    for _ in range(20):
        model(data.real(data.train_images[:64]))
    program = ckks_program(HEConfig(bound_images=64), model, data)
    assert model.training, "the network is left as it was"
    facts = ckks_facts(program, program.rehearsed(0))
    assert (facts.ring_degree, facts.log_q, facts.security_bits) == (65536, 1736, 128)
    assert (facts.circuit.bootstrappings, facts.circuit.levels) == (3, 20)
    assert facts.circuit.precision_bits > 15
    assert 10 < facts.circuit.processor_seconds_predicted["bootstrapping"] < 20


def test_what_is_no_residual_network_of_squares_is_refused():
    data = load("digits")
    with pytest.raises(RuleError, match=r"a network in CKKS cannot have moved values"):
        ckks_program(HEConfig(), lola_digits(), data)
    with pytest.raises(RuleError, match=r"every operation must be one that runs encrypted: got stem_act"):
        ckks_program(HEConfig(), resnet20_cifar(in_chans=1, image_size=8), data)
    with pytest.raises(RuleError, match="made of a network before the qat stage"):
        ckks_program(HEConfig(), torch.fx.symbolic_trace(lola_digits()), data)
