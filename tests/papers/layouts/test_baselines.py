"""Formulas of other frameworks: the printed numbers that they give, and those that they do not."""

import pytest

from papers.layouts.baselines import FRAMEWORKS, counts_of
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape

GEMM, CONV = LinearShape.gemm(512, 768, 3072), LinearShape(16, 16, 128, 128, 3, 1, 1)
PRINTED = {
    ("CrypTFlow2", GEMM): (147456, 3312, 240),
    ("CrypTFlow2", CONV): (9216, 208, 16),
    ("Cheetah", GEMM): (147456, 0, 3120),
    ("Cheetah", CONV): (1408, 0, 134),
    ("Iron", GEMM): (147456, 0, 960),
    ("Iron", CONV): (12672, 0, 257),
    ("BumbleBee", GEMM): (147456, 6144, 240),
    ("BumbleBee", CONV): (1408, 256, 16),
}
"""PrivCirNet, Table 4."""
OTHERWISE = {("Cheetah", CONV): 768, ("Iron", CONV): 6006, ("BumbleBee", CONV): 768}
"""HE-Pmult of the formula where the printed one does not go with the printed ciphertexts."""


@pytest.mark.parametrize(("framework", "shape"), PRINTED, ids=lambda value: getattr(value, "kind", value))
def test_the_printed_numbers(framework, shape):
    pmults, rotations, ciphertexts = PRINTED[framework, shape]
    assert counts_of(framework, shape, 8192) == (OTHERWISE.get((framework, shape), pmults), rotations, ciphertexts)


def test_what_has_no_formula_is_refused():
    assert set(FRAMEWORKS) == {framework for framework, _ in PRINTED}
    with pytest.raises(RuleError, match="the framework must be a known one: got 'Gazelle'; use one of CrypTFlow2, "):
        counts_of("Gazelle", GEMM, 8192)
    for shape in (LinearShape(8, 8, 4, 4, 3, 2, 1), LinearShape(8, 8, 4, 4, 3, 1, 1, 4), LinearShape.gemm(9000, 2, 2)):
        with pytest.raises(RuleError, match="a formula is for stride 1, one group and maps that fit a ciphertext: got"):
            counts_of("Cheetah", shape, 8192)
