"""Inputs that are no images: tables run as they are through all verbs, others are refused."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.passes.fuse import fuse_at
from privcirnet.runs.compiled import CompiledProgram

TABLE = torch.rand(32, 20, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(32) % 4


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)).eval()


def program_of(model: nn.Module, given: Tensor) -> tuple[CompiledProgram, Tensor]:
    """A program whose logits are those of the quantized network, and these of two inputs."""
    quantized = pc.quantize(model, given)
    program = pc.compile(quantized, given, reference=model, profile="counted", progress=False)
    logits = quantized(given[:2]).detach()
    assert_close(program(given[:2], check=True, engine="cleartext"), logits, rtol=0, atol=0)
    return program, logits


def test_a_table_runs_through_all_verbs_as_it_is(tmp_path):
    model = layers()
    found = pc.check(model, TABLE, activation="own", profile="counted", progress=False)
    assert not found.refusals
    assert not found.changes
    assert len(found.forecasts) == 2
    pc.fit(model, (TABLE, LABELS), epochs=1, validation=(TABLE, LABELS), progress=False)
    plan = pc.search(model, (TABLE, LABELS), budget=pc.uniform(2), samples=16, profile="counted", progress=False)
    pc.circulant_(model, plan.block_sizes)
    program, logits = program_of(model, TABLE)
    program.save(tmp_path / "program")
    again = pc.load(tmp_path / "program")
    for form in (TABLE[:2], TABLE[:2, :, None, None], TABLE[:2].numpy()):
        assert_close(torch.as_tensor(again(form, engine="cleartext")), logits, rtol=0, atol=0)
    with pytest.raises(
        pc.RuleError, match=r"images must have a batch axis: got shape \(20,\), .* give images\[:1\] or"
    ):
        again(TABLE[0])


def test_a_table_through_polynomials():
    model = layers()
    changes = pc.polynomial_(model, TABLE)
    assert [change.path for change in changes] == ["2"]
    pc.fit(model, (TABLE, LABELS), epochs=1, progress=False)
    expected = model(TABLE)
    fused = pc.fuse(model)
    assert_close(fused(TABLE), expected, rtol=1e-4, atol=1e-4)
    program = pc.compile(pc.quantize(fused, TABLE), TABLE, profile="counted", progress=False, failure_bits=20)
    assert program(TABLE[:1], check=True, engine="cleartext").shape == (1, 4)


def test_sequences_run_as_images_of_one_row():
    """Beside those as they are, (N, C, L): tests/api/test_signals.py."""
    torch.manual_seed(0)
    sound = torch.rand(8, 1, 1, 100)
    conv = nn.Conv2d(1, 8, (1, 9), (1, 4))
    model = nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(184, 4)).eval()
    program_of(model, sound)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            torch.rand(2, 3, 4, 8, 8),
            r"got shape .*; give images \(N, C, H, W\): no convolution runs over time or depth",
        ),
        (torch.rand(20), r"got shape \(20,\); give several rows, or table\[None\] for one"),
        (torch.randint(0, 9, (4, 12)), r"floating-point numbers: got int64; give images.float\(\), .* embedding gives"),
    ],
    ids=["video", "one row", "words"],
)
def test_what_is_no_input_is_refused_by_every_verb(given, message):
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(48, 2))
    for verb in (pc.polynomial_, pc.check, fuse_at):
        with pytest.raises(pc.RuleError, match=message):
            verb(model, given)


def test_check_says_that_one_output_is_not_trained_and_what_it_takes():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
    found = pc.check(model, TABLE, activation="own", profile="counted", progress=False)
    assert [refusal.verb for refusal in found.refusals] == ["fit"]
    assert found.forecasts
    with pytest.raises(pc.RuleError) as error:
        pc.fit(model, (TABLE, LABELS), epochs=1, progress=False)
    assert (error.value.rule, error.value.got) == (found.refusals[0].error.rule, found.refusals[0].error.got)
    program_of(model, TABLE)


def test_mistakes_are_said_with_what_to_do_instead(monkeypatch):
    with pytest.raises(RuleError, match=r"got progg; check the path, or write a program there: program.save\(folder\)"):
        pc.load("progg")
    monkeypatch.setattr("privcirnet.api.compile._quantized", lambda *_: pytest.fail("quantized before"))
    with pytest.raises(RuleError, match="got 'count'; did you mean 'counted'"):
        pc.compile(layers(), TABLE, profile="count")
    with pytest.raises(RuleError, match="got 'nolayer'; its layers are 0, 3"):
        pc.circulant_(layers(), {"nolayer": 4})


def test_images_that_are_none_or_bytes():
    program, _ = program_of(layers(), TABLE)
    with pytest.raises(RuleError, match="there must be images: got none"):
        program(TABLE[:0])
    with pytest.raises(RuleError, match="convert them to float and scale them"):
        program((TABLE * 255).to(torch.uint8))
