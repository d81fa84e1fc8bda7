"""What a program wants of t, and the verdict on a set (n, q): against exhaustive search by the protocol's own checks."""

import dataclasses
import math
import re
import types

import pytest

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.bfv.noise import MIN_NOISE_BUDGET, flood_bits, noise_bits, noise_budget, square_noise_bits
from privcirnet.he.bfv.parameters import ParameterSet
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.parameter_choice import (
    SETS,
    WIDE,
    ParameterCandidate,
    Requirements,
    budget,
    choose,
    judge,
    requirements,
)
from privcirnet.he.planning.plan_program import options
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import bounds, limits
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Linear
from privcirnet.he.ring.sampling import IMAGE_DISTANCE_BITS, image_distance_bits
from tests.he.layer_examples import paper_layer
from tests.he.planning.case import (
    DEFAULT,
    FASTEST,
    INTERVALS,
    LOCAL,
    LONG,
    NETWORK,
    ODD,
    SIZES,
    candidates,
    exhaustive,
    products,
    wants,
)


@pytest.mark.parametrize("bits", [0, 16.5, 24, 28, 32, 38])
def test_verdicts_are_those_of_exhaustive_search(bits: float) -> None:
    some = {True: 0, False: 0}
    for option in candidates():
        verdict, expected = judge(wants(bits), option), exhaustive(option, bits)
        assert verdict.fits == bool(expected), option.parameters
        some[verdict.fits] += 1
        if verdict.fits:
            assert verdict.parameters is not None
            assert verdict.parameters.plain_modulus == max(expected)
            thrifty = judge(wants(bits), dataclasses.replace(option, thrifty=True))
            assert thrifty.parameters is not None
            assert thrifty.parameters.plain_modulus == min(expected)
            assert verdict.binding == ""
        else:
            assert verdict.binding
            assert isinstance(verdict.error, RuleError)
    assert some[True] or bits > 32
    assert some[False] or bits < 24


BINDINGS = [
    (LONG, wants(), "security", r"security: log q 240 > 214", r"at most 214 .*: got 240 bits"),
    (ODD, wants(), "security", "security: q must be", r"primes of 20 to 60 bits, .*: got \(61, 60\)"),
    (
        *(WIDE, wants(largest=1 << 60), "value bound", r"value bound of \w+: needs t of 62 bits, at most 60"),
        r"under t / 2: got \w+ reaches 2\^60.0, t has at most 60 bits",
    ),
    (
        *(WIDE, wants(45), "truncation", r"truncation failure: needs t of 7\d bits, at most 60"),
        r"truncation must reach he.failure_bits = 45: got \d+\.\d .* 60 bits \(7\d needed\)",
    ),
    (
        *(DEFAULT, wants(32), "noise budget", r"noise budget: -\d+ bits after 40-bit flooding"),
        r"2 bits of noise budget: got -\d+ bits with n = 8192, .* 5\d-bit plain modulus .* truncation failure",
    ),
    (
        *(DEFAULT, wants(largest=1 << 55), "noise budget", r"noise budget: -\d+ bits"),
        r"57-bit plain modulus that the value bound of \w+",
    ),
]


@pytest.mark.parametrize(("wanted", "asked", "stage", "binding", "message"), BINDINGS)
def test_what_binds_is_named(wanted: ParameterSet, asked: Requirements, stage: str, binding: str, message: str) -> None:
    found = candidates(wanted)
    verdict = judge(asked, found[0])
    assert (verdict.stage, verdict.fits) == (stage, False)
    assert re.match(binding, verdict.binding), verdict.binding
    with pytest.raises(RuleError, match=message) as raised:
        choose(asked, found)
    assert isinstance(raised.value, DoesNotFit) == (stage != "security")


def blocks(*sizes: int) -> tuple[Node, ...]:
    """Layers of one block of each of these sizes, which no tiling makes smaller; never run."""
    layers = [paper_layer(LinearShape.gemm(1, b, b), b, 1 << 17) for b in sizes]
    return tuple(Node(f"l{i}", Linear(layer), (), layer.shape.output_shape, 0) for i, layer in enumerate(layers))


def test_transform_lengths_that_no_modulus_carries() -> None:
    """The lengths are primes, and so is t: t - 1 is a multiple of their product, of 47 bits, and of 2 n, of 15."""
    nodes = blocks(97, 101, 103, 107, 109, 113, 127)
    verdict = judge(wants(), options(nodes, COUNTED, LOCAL, [WIDE])[0])
    assert verdict.stage == "transform lengths"
    assert f"1 mod {2 * 16384 * 97 * 101 * 103 * 107 * 109 * 113 * 127}" in verdict.binding
    assert judge(wants(), options(nodes[:5], COUNTED, LOCAL, [WIDE])[0]).fits
    assert re.match(r"transform lengths: no t of at most 60 bits .* is 1 mod \d+", verdict.binding)
    with pytest.raises(DoesNotFit, match="every transform length: got no t of at most 60"):
        choose(wants(), options(nodes, COUNTED, LOCAL, [WIDE]))


def test_layers_that_do_not_fit_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LENGTH", 16384)
    nodes = blocks(16384)
    small, large = options(nodes, COUNTED, LOCAL, [DEFAULT, WIDE])
    assert judge(wants(), small).binding == "layout: block size 16384 at 1 x 1 for 8192 slots"
    assert judge(wants(), large).fits
    assert choose(wants(), [small, large]).set == WIDE
    match = r"a cell .* must fit a ciphertext: got block size 16384 at 1 x 1 for 8192 slots; n = 16384, .* would do"
    with pytest.raises(RuleError, match=match):
        choose(wants(), [small, large], DEFAULT)


def test_budget_is_that_of_the_noise_model() -> None:
    for option in candidates(*(known for known in SETS if known != FASTEST)):
        parameters = judge(wants(), option).parameters
        parts = budget(option.layers, parameters)
        noise = noise_bits(parameters.ring_degree, parameters.plain_bits, products(option))
        assert parts.noise == noise
        assert parts.left == parts.modulus - parts.plain - parts.noise - parts.flooding - 2 == MIN_NOISE_BUDGET
        assert parts.flooding == flood_bits(parameters) - noise == noise_budget(parameters, noise) - 2 + 40
        assert (parts.modulus, parts.plain) == (sum(parameters.coefficient_bits[:-1]), parameters.plain_bits)
        assert parts.switched >= 1


def test_many_replies_want_more_flooding() -> None:
    """A million times the coefficients take ten bits of flooding, which take five bits off t, or the set does not fit."""
    few = candidates(DEFAULT)[0]
    layer = max(few.layers, key=lambda layer: layer.products_per_sum)
    times = types.SimpleNamespace(
        kept=None, ciphertexts_out=layer.ciphertexts_out << 20, noise_bits=layer.noise_bits, transform_lengths={1}
    )
    many = dataclasses.replace(few, layers=(*few.layers, times))
    roomy, tight = judge(wants(), few), judge(wants(), many)
    assert roomy.parameters.plain_bits - 5 <= tight.parameters.plain_bits < roomy.parameters.plain_bits
    assert min(roomy.budget.distance, tight.budget.distance) >= IMAGE_DISTANCE_BITS
    assert tight.budget.flooding > roomy.budget.flooding
    most = wants(largest=roomy.parameters.plain_modulus // 2)
    assert judge(most, few).fits
    refused = judge(most, many)
    assert (refused.stage, refused.fits) == ("noise budget", False)
    assert re.match(r"noise budget: an image is hidden to 2\^-2\d\.\d", refused.binding)
    with pytest.raises(DoesNotFit, match=r"image's noise to 2\^-30: got 2\^-2\d\.\d with n = 8192"):
        choose(most, [many])


def test_squares_are_hidden_too() -> None:
    """They count with the coefficients that their replies hold, of a subring where they are few."""
    parameters = judge(wants(), candidates(DEFAULT)[0]).parameters
    flood, noise = flood_bits(parameters), square_noise_bits(parameters)
    assert budget((), parameters, [9000, 3]).distance == image_distance_bits([(8192 + 1024 + 4, noise)], flood)
    assert budget((), parameters).distance == math.inf


def test_the_layer_with_the_most_noise_counts() -> None:
    """The one with the most products to a sum."""
    spectral = [paper_layer(LinearShape.gemm(1, width, 4), 1, WIDE.ring_degree) for width in (1 << 14, 1 << 16, 4)]
    option = dataclasses.replace(candidates(WIDE)[0], layers=tuple(spectral))
    assert [layer.products_per_sum for layer in spectral] == [1 << 14, 1 << 16, 4]
    verdict = judge(wants(), option)
    parameters = verdict.parameters
    one = [budget((layer,), parameters).noise for layer in spectral]
    assert len(set(one)) == 3
    assert budget((), parameters).noise <= min(one), "no program has less noise than a square"
    assert verdict.budget is not None
    assert verdict.budget.noise == budget(spectral, parameters).noise == max(one)


@pytest.mark.parametrize("option", candidates(DEFAULT, WIDE), ids=lambda o: str(o.parameters))
def test_more_security_never_needs_a_smaller_modulus(option: ParameterCandidate) -> None:
    needed = [wants(bits).truncation_bits for bits in range(40)]
    assert needed == sorted(needed)
    assert needed[-1] > needed[0]
    verdicts = [judge(wants(bits), option) for bits in range(40)]
    fitting = [v.fits for v in verdicts]
    assert fitting == sorted(fitting, reverse=True), "what fits with more bits fits with fewer"
    carried = [v.parameters.plain_modulus for v in verdicts if v.fits and v.parameters]
    assert carried == sorted(carried)
    refused = [v.parameters.plain_modulus for v in verdicts if not v.fits and v.parameters]
    assert refused == sorted(refused)


def test_needed_bits_are_the_least_that_do() -> None:
    for bits in (0, 7, 20.5, 39):
        asked = wants(bits)
        assert asked.reached(2**asked.truncation_bits - 1) >= bits > asked.reached(2 ** (asked.truncation_bits - 1) - 1)
    for value, needed in {4: 4, 7: 4, 8: 5}.items():
        asked = wants(largest=value)
        assert asked.value_bits == needed
        assert 2 * value < 2**needed - 1
        assert 2 * value >= 2 ** (needed - 1) - 1
    assert wants(0, largest=1 << 50).needed_by == f"value bound of {wants().node}"
    assert wants(30).needed_by == "truncation failure"


def test_the_largest_bound_is_named() -> None:
    asked = wants()
    assert asked.largest == max(bounds.largest(i) for i in INTERVALS.values())
    assert bounds.largest(INTERVALS[asked.node]) == asked.largest


def test_without_truncation_only_values_count() -> None:
    nodes = tuple(node for node in NETWORK.nodes[:2])
    asked = requirements(nodes, {n.name: INTERVALS[n.name] for n in nodes}, SIZES, 1000)
    assert asked.reached(2**40) == math.inf
    assert asked.truncation_bits == 1
    assert asked.satisfied(2 * asked.largest + 1)
    assert not asked.satisfied(2 * asked.largest)
