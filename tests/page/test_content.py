"""What the page says of a program, and which it refuses."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol.one_message import ckks
from privcirnet.page.content import TestImages, subject_of
from privcirnet.runs.pictures import preparation_for
from tests.artifact.samples import ckks_program
from tests.he.networks import network
from tests.page import samples


def test_digits_are_inverted_and_photographs_are_not():
    assert preparation_for(subject_of(samples.program()), "digits").light_on_dark
    assert not preparation_for(subject_of(samples.program(3, 255)), "cifar10").light_on_dark


def test_a_program_that_pictures_are_no_input_of_is_refused():
    with pytest.raises(RuleError, match=r"a picture can become pixels from 0 up: got \[-8, 15\]"):
        preparation_for(subject_of(network()), "digits")
    with pytest.raises(RuleError, match=r"must take its network's pixels: got \[-7, 16\] for \[-8, 15\]"):
        subject_of(network(), 23, -7)


def test_another_data_set_than_the_programs_is_refused():
    program = subject_of(samples.program())
    with pytest.raises(RuleError, match="there must be a class for each logit: got 3 for 10 logits"):
        samples.content(classes=("a", "b", "c")).check(program)
    tests = TestImages(np.zeros((1, 3, 32, 32), np.uint8), [0])
    with pytest.raises(RuleError, match=r"size of the program's: got \(3, 32, 32\) for \(1, 8, 8\)"):
        samples.content(tests=tests).check(program)
    samples.content(classes=(), tests=None).check(program)
    assert samples.content(classes=()).name(7) == "class 7"


def test_a_ckks_program_has_one_round_and_the_data_set_s_pixels():
    """It knows those of its examples; where nobody knows the data set, twice as large ones fit its bounds."""
    known = ckks.from_dict(ckks.to_dict(ckks_program()))
    found = subject_of(known, levels=255)
    assert (found.shape, found.low, found.high, found.logits) == ((3, 8, 8), 0, 255, 4)
    assert subject_of(known).high == known.pixels.high
    assert [r["name"] for r in found.facts()["rounds"]] == ["image"]
    assert found.facts()["one_round"]
    assert found.parameters.startswith("CKKS of 128 bits, n = 65536")
    assert preparation_for(found, "cifar10").levels == 255
