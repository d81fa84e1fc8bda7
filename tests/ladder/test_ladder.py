"""The ladder: one equality test for each arrow of the pipeline, on every network. The first broken step names the place.

dense -> circulant -> fused -> fake-quant -> (guard bits) -> integer program -> program folder -> clear-text engine ->
encrypted; integer program -> prepared, which is everything encrypted before the image, and shares in clear with it

Where the arithmetic is the same the step is bitwise; elsewhere the tolerance comes with its derivation. The first step,
guard bits are in test_digits, trained networks and other widths in test_trained, and what each network
has to carry in test_networks.
"""

import numpy as np
import pytest
import torch

from privcirnet.artifact.program import read_program, write_program
from privcirnet.he.program import operations as op
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operation import KINDS
from privcirnet.he.protocol.parties.session import prepare
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.ring import sampling
from privcirnet.nn.circulant import block_size_of
from privcirnet.runs import interactive
from tests.conftest import WHOLE
from tests.he.parties import check, parties, protocol
from tests.ladder.case import assert_bitwise, real
from tests.ladder.digits import DIGITS
from tests.ladder.exact import EXACT, MIXED, TRANSFORMER
from tests.ladder.mobilenetv2 import COMPOSED, MOBILENETV2
from tests.ladder.padded import PADDED
from tests.ladder.surgery import DENSENET, GATED, MIXER, RESNET
from tests.ladder.surgery import VIT as TIMM_VIT
from tests.ladder.vit import VITS

CASES = (
    DIGITS,
    MOBILENETV2,
    COMPOSED,
    RESNET,
    DENSENET,
    GATED,
    TIMM_VIT,
    MIXER,
    *VITS,
    EXACT,
    TRANSFORMER,
    MIXED,
    PADDED,
)
AT_ONCE = {"kernel": (DIGITS, MOBILENETV2, TIMM_VIT, EXACT, TRANSFORMER, MIXED), "tenseal": (DIGITS,)}
"""What runs encrypted in `make test`: convolutions, depthwise ones, attention and exact activations; SEAL once."""
ENCRYPTED = [
    pytest.param(case, engine, id=f"{engine}-{case.name}", marks=[] if case in cases else pytest.mark.slow)
    for engine, cases in AT_ONCE.items()
    for case in CASES
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


@torch.no_grad()
def test_circulant_to_fused(case):
    """Folding reorders a handful of float64 operations a value: 1e-10 is about 2^19 units in the last place."""
    expected, found = case.circulant(real(case.images)), case.fused(real(case.images))
    torch.testing.assert_close(found, expected, rtol=case.folding, atol=case.folding * expected.abs().max().item())
    assert {name: block_size_of(case.fused.get_submodule(name)) for name in case.blocks} == case.blocks


@torch.no_grad()
def test_fused_to_fake_quant(case):
    fine, coarse = case.fused(real(case.images)), case.quantized(real(case.images))
    assert (fine - coarse).abs().max() < 0.25 * fine.abs().max()
    assert not torch.equal(fine, coarse)


def test_fake_quant_to_integer_program_is_bitwise(case):
    assert_bitwise(case, case.quantized, case.program)


def test_program_to_folder_and_back(case, tmp_path):
    write_program(tmp_path / "program", case.program, {}, full=True)
    again, spectra = read_program(tmp_path / "program")
    assert (again.nodes, again.parameters) == (case.program.nodes, case.program.parameters)
    assert set(again.weights) == set(case.program.weights)
    for name, weights in case.program.weights.items():
        assert np.array_equal(again.weights[name].rows, weights.rows)
        assert np.array_equal(again.weights[name].bias, weights.bias)
    for node, layer in case.program.linear_nodes:
        t = case.program.parameters.plain_modulus
        assert np.array_equal(spectra[node.name], layer.spectrum(case.program.weights[node.name].rows, t))


def test_integer_program_to_clear_text_engine(case):
    """Exactly equal, once the interpreter is told which way each truncation went; and that is by at most one unit."""
    for image in case.images[: 3 if WHOLE else 1].numpy():
        logits, values, _ = protocol(case.program, "cleartext", image)
        assert interactive.wrong_nodes(case.program, values) == []
        told = interpret(case.program, image, lambda node, _, v=values: v[node.name])
        assert np.array_equal(case.program.answered(told[case.program.output.name]), logits)
        truncated = [node.name for node in case.program.nodes if isinstance(node.operation, op.Truncate)]
        for name in truncated[:1]:
            assert np.abs(interpret(case.program, image)[name] - values[name]).max() == 1


@pytest.mark.parametrize(("case", "engine"), ENCRYPTED)
def test_clear_text_engine_to_encrypted_is_bitwise(case, monkeypatch, engine):
    """With the same masks the engines give the same shares of every node, bit for bit, by the planned operations."""
    results = []
    for each in ("cleartext", engine):
        random = np.random.default_rng(7)
        monkeypatch.setattr(sampling, "uniform", lambda shape, t, r=random: r.integers(0, t, shape, dtype=np.uint64))
        results.append(protocol(case.program, each, case.images[0].numpy()))
    (clear, clear_values, clear_meter), (encrypted, encrypted_values, meter) = results
    assert np.array_equal(clear, encrypted)
    assert all(np.array_equal(clear_values[name], encrypted_values[name]) for name in clear_values)
    for node, layer in case.program.linear_nodes:
        for counts in (clear_meter.counts[node.name], meter.counts[node.name]):
            assert (counts["rotate"], counts["pmult"]) == (layer.rotations, layer.pmults)


def test_integer_program_to_prepared(case):
    """As the step of the clear-text engine: every node of each image, the interpreter told of its truncations."""
    client, session = parties(case.program, "cleartext")
    prepare(client, session, 2)
    for image in case.images[:2].numpy():
        traffic = check(case.program, client, session, image)
        assert (client.waited, len(traffic)) == (False, schedule_of(case.program).rounds_online)
        framing = sum(each.up + each.down for each in traffic) - schedule_of(case.program).bytes_online
        assert 0 < framing < 100 * len(traffic)
    assert not session.meter.counts


def test_every_operation_is_on_the_ladder():
    """A guard: an operation that no network here has would be prepared by nobody."""
    assert {type(node.operation) for case in CASES for node in case.program.nodes} == set(KINDS.values())
