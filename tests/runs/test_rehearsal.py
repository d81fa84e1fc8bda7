import dataclasses
from contextlib import contextmanager

import numpy as np
import pytest

from privcirnet.artifact.summaries import TruncationTrial
from privcirnet.runs import rehearsal
from privcirnet.runs.rehearsal import Trial
from tests.ladder.surgery import RESNET

PROGRAM = RESNET.program
IMAGES = np.random.default_rng(0).integers(0, 17, (6, *RESNET.shape))
TRIAL = Trial(IMAGES, np.ones((6, PROGRAM.logits.shape[0])))


def test_truncations_are_floor_or_ceiling_each_as_often_as_the_part_that_is_cut_off_says():
    values = np.repeat(np.array([[-21], [-16], [0], [5], [100]]), 40_000, axis=1)
    found = rehearsal.on_shares(values, 3, PROGRAM.parameters.plain_modulus, np.random.default_rng(1))
    assert ((found == values >> 3) | (found == -(-values >> 3))).all()
    np.testing.assert_allclose(found.mean(axis=1), values[:, 0] / 8, atol=0.02)  # eight standard deviations


def test_truncations_at_random_leave_clear_classes():
    found = rehearsal.rehearse(PROGRAM, TRIAL)
    assert found.images == 6
    assert 0 <= found.changed <= 6
    assert found.refused == 0


def test_changed_classes_are_counted(monkeypatch):
    output = PROGRAM.output

    def opposite(program, image, truncate=None):
        return {output.name: np.array([1, 2, 3, 0]) if truncate is None else np.array([3, 2, 1, 0])}

    monkeypatch.setattr(rehearsal, "interpret", opposite)
    result = rehearsal.rehearse(PROGRAM, TRIAL)
    assert (result.images, result.changed, result.refused) == (6, 6, 0)
    assert result.spoiled


def test_how_far_logits_are_from_the_quantized_networks_is_measured(monkeypatch):
    """Of the largest logit of an image, in the median of all; classes are counted."""
    output, logits = PROGRAM.output, np.array([[-4.0, 8.0, 2.0], [0.0, 2.0, 8.0], [0.0, 7.0, 8.0]])
    integers = iter(np.repeat(np.round(logits * 2.0**-output.log_step), 2, axis=0))
    monkeypatch.setattr(rehearsal, "interpret", lambda *_: {output.name: next(integers)})
    quantized = np.array([[-4.0, 8.0, 2.0], [0.0, 2.0, 10.0], [0.0, 10.0, 9.0]])
    unbounded = dataclasses.replace(PROGRAM, output_bits=0)
    found = rehearsal.rehearse(unbounded, Trial(IMAGES[:3], quantized))
    assert found == TruncationTrial(3, 0, 0, 1, pytest.approx(0.2, abs=2.0**output.log_step))
    said = "off the quantized network's, 1 of 3 classes differ"
    assert str(dataclasses.replace(found, difference=0.2)) == f"encrypted logits 20.0% {said}"
    assert str(dataclasses.replace(found, difference=None)) == f"encrypted logits far {said}"


def test_logits_that_are_no_numbers_have_no_difference():
    quantized = np.full_like(TRIAL.logits, np.nan)
    assert rehearsal.rehearse(PROGRAM, Trial(IMAGES, quantized)).difference is None


@pytest.mark.parametrize(("nearest", "random", "refused"), [(2, 2, 0), (2, 100, 6), (100, 200, 0)])
def test_logits_that_truncations_bring_beyond_the_bound_are_refused(nearest, random, refused, monkeypatch):
    """Those of an image that is beyond it anyway are no truncation's fault."""
    output = PROGRAM.output

    def logits(program, image, truncate=None):
        return {output.name: np.array([0, 1, 0, nearest if truncate is None else random])}

    monkeypatch.setattr(rehearsal, "interpret", logits)
    result = rehearsal.rehearse(dataclasses.replace(PROGRAM, output_bits=4), TRIAL)
    assert (result.changed, result.refused) == (0, refused)
    assert result.spoiled == bool(refused)


@pytest.mark.parametrize("count", [1, 2])
def test_a_bar_advances_once_for_each_image(count):
    steps = []

    @contextmanager
    def bar(description, total):
        assert total == count

        def advance(note: object = "", by: int = 1, to: float | None = None) -> None:
            steps.append(by)

        yield advance

    rehearsal.rehearse(PROGRAM, Trial(IMAGES[:count], TRIAL.logits[:count]), bar)
    assert steps == [1] * count
