"""Leveled inference from a network to a summary, in clear: both parties here, and through a service."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from papers.falcon2020.command import program_facts
from papers.falcon2020.config import Falcon2020Config
from papers.falcon2020.lower import leveled_program
from papers.falcon2020.mode import Leveled
from papers.falcon2020.protocol.session import LeveledServer
from privcirnet.artifact.summaries import InferenceSummary, fit, plain
from privcirnet.data import load
from privcirnet.errors import RuleError
from privcirnet.models import lola_digits
from privcirnet.nn.activations import Square
from privcirnet.passes.convert import circulant_
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.parties import RunOptions

DATA = load("digits")
CLEAR = RunOptions("cleartext")


@pytest.fixture(scope="module")
def program():
    """LoLa's network for digits with random weights, as three bits of a pixel's five enter it."""
    torch.manual_seed(0)
    network = circulant_(lola_digits(), {"fc1": 8}, pad=True)
    return leveled_program(Falcon2020Config(weight_bits=4, pixel_bits=3), network, DATA)


@pytest.fixture(scope="module")
def images():
    return DATA.test_images[:2].numpy().astype(np.int64)


def test_the_program_says_what_it_takes(program):
    facts = program_facts(program)
    assert (facts["planner"], facts["depth_products"], facts["depth_squares"]) == ("packed", 3, 2)
    assert (facts["block_sizes"], facts["security_bits"]) == ({"conv": 1, "fc1": 8, "fc2": 1}, 128)
    assert (program.exact.high, program.shift) == (4, 2), "digits are in [0, 16]"


def test_the_summary_has_the_keys_of_the_interactive_one(program, images):
    steps = []
    found = evaluate(Leveled(program), images, CLEAR, steps.append)
    labels = np.array([0, 1])
    summary = json.loads(json.dumps(plain(found.summary(labels, labels))))
    assert found.wrong == [[], []]
    record = fit(InferenceSummary, summary, "")
    audit, cost = record.audit, record.cost
    assert (audit.logits_equal, audit.argmax_equal, audit.logit_max_difference) == (2, 2, 0.0)
    assert cost.rounds == 1
    assert min(cost.seconds, cost.bytes, record.bytes_keys) > 0
    assert [step.images for step in steps] == [1, 2]
    assert [row.name for row in record.layers] == ["conv", "square behind conv", "fc1", "square behind fc1", "fc2"]
    assert sum(row.rotations for row in record.layers) == program.plan.circuit.counts["rotate"] > 0


def test_an_audit_finds_a_layer_that_went_wrong(program, images, monkeypatch):
    """Weights that changed places in the server's memory alone."""
    honest = LeveledServer.session

    def tampering(self, *arguments):
        factor = self.inference._plaintexts[0][0].held[0].values
        factor[:] = np.roll(factor, 20)
        return honest(self, *arguments)

    monkeypatch.setattr(LeveledServer, "session", tampering)
    found = evaluate(Leveled(program), images[:1], CLEAR)
    assert found.wrong[0][0] == "conv"
    labels = np.array([0])
    assert found.summary(labels, labels).audit.logits_equal == 0


def test_pixels_beyond_the_range_are_refused(program, images):
    with pytest.raises(RuleError, match=r"pixels must be integers in \[0, 4\]"):
        evaluate(Leveled(program), images + 64, CLEAR)


def test_a_batch_shares_one_request(images):
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(64, 8), Square(), nn.Linear(8, 4), Square(), nn.Linear(4, 3)
    config = Falcon2020Config(weight_bits=3, pixel_bits=2, plan="batch")
    program = leveled_program(config, nn.Sequential(*layers), DATA)
    assert program.plan.public.batch > 2
    found, labels = evaluate(Leveled(program), images, CLEAR), np.array([0, 1])
    assert found.wrong == [[], []]
    assert found.summary(labels, labels).audit.logits_equal == 2
    assert found.answers[0].bytes == found.answers[1].bytes


def test_a_network_deeper_than_any_parameters_carry_is_refused():
    torch.manual_seed(0)
    behind = [each for _ in range(6) for each in (Square(), nn.Linear(8, 8))]
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), *behind)
    with pytest.raises(RuleError, match=r"must fit n = 32768 with 128-bit security: .* got \d+ bits"):
        leveled_program(Falcon2020Config(), network, DATA)


def test_what_is_no_leveled_network_is_refused():
    quantized = torch.fx.symbolic_trace(lola_digits())
    with pytest.raises(RuleError, match="made of a network before the qat stage: got a quantized network"):
        leveled_program(Falcon2020Config(), quantized, DATA)
    with pytest.raises(RuleError, match="for three layers on a vector: got 3 layers, 2 of them"):
        leveled_program(Falcon2020Config(plan="batch"), lola_digits(), DATA)
