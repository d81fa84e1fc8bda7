"""ENSEI's small transform modulus: what the paper's moduli do, and the setting in which it is right."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.ensei import moduli as ensei
from papers.ensei.exchange import Convolution, wrong_share
from papers.ensei.moduli import Moduli, Sums
from privcirnet.errors import RuleError
from privcirnet.he.bfv import batching, interface
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS, Parameters, choose
from privcirnet.he.layers.integer import Values, convolve, expand_rows
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer, encode_weights
from privcirnet.he.planning.planner import candidate_layers
from privcirnet.he.ring import cyclic, modular, sampling
from tests.he.exchange import random_rows
from tests.he.insecure import insecure_parameters
from tests.he.layer_examples import paper_layer

N = 256
Array = np.ndarray
Sides = tuple[interface.ClientEngine, interface.ServerEngine]


def transform(x: Array, p: int, *, inverse: bool = False) -> Array:
    return cyclic.cyclic(cyclic.cyclic(x, 0, p, inverse=inverse), 1, p, inverse=inverse)


def as_published(u: Array, w: Array, moduli: Moduli, size: int) -> Array:
    """Sections 4.1 and 5.2 step by step for one channel; numpy only. Cyclic convolution of nonnegative integers."""
    p_n, p_a, p_e = moduli.ntt, moduli.sharing, moduli.encryption
    theirs = sampling.uniform((size, size), p_a)
    ours = modular.subtract(modular.residues(u, p_a), theirs, p_a)
    spectra = [transform(share % np.uint64(p_n), p_n) for share in (ours, theirs)]
    weight = transform(modular.residues(w, p_n), p_n)
    under_encryption = modular.multiply(modular.add(*spectra, p_e), weight, p_e)
    mask = sampling.uniform((size, size), p_a)
    sent = modular.subtract(under_encryption, mask, p_e)
    parts = [transform(slots % np.uint64(p_n), p_n, inverse=True) for slots in (sent, mask)]
    return modular.centered(modular.add(*parts, p_n), p_n)


def cyclic_convolution(u: Array, w: Array) -> Array:
    y = np.zeros_like(u)
    for (i, j), value in np.ndenumerate(w):
        y += value * np.roll(u, (i, j), (0, 1))
    return y


# Table 2, with the largest p_A that is allowed and the smallest; 8-bit inputs and binary weights fit them all.
@pytest.mark.parametrize(
    ("moduli", "size", "right"),
    [
        (Moduli(2311, 2311, 12289), 7, False),
        (Moduli(2311, 12289, 12289), 7, False),
        (Moduli(147457, 147457, 147457), 8, True),
        (Moduli(12289, 12289, 147457), 8, False),
    ],
    ids=["binary, p_A = p_N", "binary, p_A = p_E", "medium", "unequal"],
)
def test_the_papers_moduli_are_right_only_if_equal(moduli: Moduli, size: int, right: bool) -> None:
    random = np.random.default_rng(0)
    u, w = random.integers(0, 128, (size, size)), np.zeros((size, size), dtype=np.int64)
    w[:3, :3] = random.choice([-1, 1], (3, 3))
    assert moduli.ntt > 2 * 127 * 9, "equation 20 holds, with its factor for the sign"
    found = as_published(u, w, moduli, size)
    wrong = (found != cyclic_convolution(u, w)).mean()
    assert wrong == 0 if right else wrong > 0.9


def test_without_any_mask_the_products_alone_wrap() -> None:
    """Not a matter of shares: residues mod 2311 multiplied mod 12289 are no residues mod 2311."""
    p_n, p_e = 2311, 12289
    a, b = (sampling.uniform((1000,), p_n) for _ in range(2))
    assert (modular.multiply(a, b, p_e) % np.uint64(p_n) != modular.multiply(a, b, p_n)).mean() > 0.9


def test_the_papers_condition_says_nothing_of_channels() -> None:
    sums = Sums(channels=32, taps=9, largest_input=255, largest_weight=1)
    ensei.check(Moduli(147457, 147457, 147457), sums, 40)
    with pytest.raises(RuleError, match=r"over twice the largest output, .*: got 2311 for outputs up to 2295;"):
        ensei.check(Moduli(2311, 2311, 12289), Sums(1, 9, 255, 1), 0)
    with pytest.raises(RuleError, match="twice the largest output"):
        ensei.check(Moduli(12289, 12289, 12289), sums, 0)


@pytest.mark.parametrize("values", [(15, 15, 17), (3, 7, 5), (7, 5, 11), (2, 3, 5), (7, 7, (1 << 60) + 33), (7, 7, 8)])
def test_moduli_are_ordered_primes(values: tuple[int, int, int]) -> None:
    with pytest.raises(RuleError, match=r"odd primes with p_N <= p_A <= p_E under 2\^60: got Moduli"):
        Moduli(*values)


SMALL = Sums(channels=2, taps=9, largest_input=3, largest_weight=1)


def test_each_condition_at_its_edge() -> None:
    """2 x 54 < 109; B = 2 x 2 x 108^2 = 46656; with 4 hiding bits 17 B = 793152 <= 793153 (no prime is nearer)."""
    ensei.check(Moduli(109, 109, 109), SMALL, 40)
    with pytest.raises(RuleError, match="twice the largest output"):
        ensei.check(Moduli(107, 107, 107), SMALL, 0)
    with pytest.raises(RuleError, match=r"shares must be taken mod p_N: .* got p_A = 113, p_N = 109"):
        ensei.check(Moduli(109, 113, 10000019), SMALL, 4)
    above, below = (next(p for p in r if modular.is_prime(p)) for r in (range(793152, 10**6), range(793152, 0, -1)))
    ensei.check(Moduli(109, 109, above), SMALL, 4)
    for moduli, bits in ((Moduli(109, 109, below), 4), (Moduli(109, 109, above), 5)):
        with pytest.raises(RuleError, match=r"no masked sum may wrap: .*: got \d+ for p_E"):
            ensei.check(moduli, SMALL, bits)


@pytest.mark.parametrize("lengths", [{5}, {3, 7}, {33}, {1}])
@pytest.mark.parametrize("hiding_bits", [0, 8, 16])
def test_choice_is_the_smallest(lengths: set[int], hiding_bits: int) -> None:
    found = ensei.choose(SMALL, lengths, N, hiding_bits)
    ensei.check(found, SMALL, hiding_bits)
    assert found.sharing == found.ntt
    suitable = [p for p in range(109, found.ntt) if modular.is_prime(p) and all(p % n == 1 % n for n in lengths)]
    assert not suitable
    assert all(found.ntt % length == 1 % length for length in lengths)
    assert found.encryption % (2 * N) == 1
    for smaller in range(found.encryption - 2 * N, 0, -2 * N)[:20]:
        if modular.is_prime(smaller):
            with pytest.raises(RuleError, match=r"no masked sum may wrap|odd primes"):
                ensei.check(Moduli(found.ntt, found.ntt, smaller), SMALL, hiding_bits)


def test_forty_hiding_bits_do_not_fit() -> None:
    with pytest.raises(RuleError, match=r"plain modulus must have at most 60 bits: got a prime over .*hiding bits"):
        ensei.choose(Sums(32, 9, 15, 7), {33}, 8192, 40)


def sums_of(layer: SpectralLayer, x: int, w: int) -> Sums:
    return Sums(layer.layout.blocks_in * layer.block_size, layer.shape.kernel**2, x, w)


def exchange(layer: SpectralLayer, rows: Values, moduli: Moduli, hiding_bits: int, sides: Sides) -> Convolution:
    channels = layer.layout.blocks_in * layer.block_size
    return Convolution(layer, rows, moduli, ensei.mask_bound(moduli, channels, hiding_bits), *sides)


def in_clear(layer: SpectralLayer, rows: Values, x: int, w: int, hiding_bits: int) -> Convolution:
    found = ensei.choose(sums_of(layer, x + 8, w), layer.transform_lengths, layer.ring_degree, hiding_bits)
    toy = insecure_parameters(layer.ring_degree)
    object.__setattr__(toy, "plain_modulus", found.encryption)
    sides = engine_of("cleartext").parties(toy)
    return exchange(layer, rows, found, hiding_bits, sides)


@given(st.data())
def test_lifted_layers_are_right(data: st.DataObject) -> None:
    """Strides, circulant blocks and every plan too; the values at their bounds as often as not."""
    b, stride = data.draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (4, 1)]))
    channels = (b * data.draw(st.integers(1, 3)) for _ in range(2))
    height, width = data.draw(st.integers(2, 4)), data.draw(st.integers(2, 4))
    kernel = data.draw(st.sampled_from([1, 3])) if stride == 1 else 3
    shape = LinearShape(height, width, *channels, kernel, stride, kernel // 2)
    layer = data.draw(st.sampled_from(candidate_layers(shape, b, N)))
    rows = random_rows(shape, b, data.draw(st.integers(0, 99)), 3)
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = (
        random.choice([-15, 15], shape.input_shape)
        if data.draw(st.booleans())
        else random.integers(-15, 16, shape.input_shape)
    )
    both = in_clear(layer, rows, 15, 3, data.draw(st.sampled_from([0, 5, 16])))
    bias = random.integers(-8, 9, shape.out_channels)
    expected = convolve(x, expand_rows(rows, b), shape) + bias[:, None, None]
    assert (both.run(x, bias).output == expected).all()


@pytest.mark.parametrize("b", [1, 2])
def test_largest_slots_reach_the_bound_and_no_further(b: int) -> None:
    """Shares and weights whose every slot is p_N - 1: the sums are B / b, because b channels share a block."""
    layer = paper_layer(LinearShape(4, 4, 8, 8, 3, 1, 1), b, N)
    both = in_clear(layer, random_rows(layer.shape, b), 1, 1, 0)
    top = both.moduli.ntt - 1
    spectrum = np.full(layer.layout.spectrum_shape, top, dtype=np.uint64)
    slots = np.full((layer.ciphertexts_in, N), 2 * top, dtype=np.uint64)
    server = both.server
    keys = server.load_keys(both.client.public_keys(layer.column_steps), layer.column_steps)
    inputs = [server.receive(both.client.encrypt(row)) for row in slots]
    outputs = layer.evaluate(encode_weights(layer, spectrum, server), inputs, server, keys)
    largest = max(int(both.client.decrypt(server.reply(c, keys)).max()) for c in outputs)
    assert largest * b == ensei.largest_slot(both.moduli.ntt, 8) < both.moduli.encryption


def test_masks_cover_their_whole_range() -> None:
    """Lifted, a range over the largest slot; otherwise every residue, and nothing is lost by adding them."""
    layer = paper_layer(LinearShape(4, 4, 8, 8, 3, 1, 1), 1, N)
    found = ensei.choose(sums_of(layer, 15, 1), {5}, N, 12)
    assert ensei.mask_bound(found, 8, 12) == ensei.largest_slot(found.ntt, 8) * 4096 < found.encryption
    equal = ensei.equal(sums_of(layer, 15, 1), {5}, N)
    assert ensei.mask_bound(equal, 8, 12) == equal.encryption
    ensei.check(equal, sums_of(layer, 15, 1), 40)
    smaller = [p for p in range(2 * 15 * 72, equal.ntt) if p % (2 * N * 5) == 1 and modular.is_prime(p)]
    assert not smaller


def real(shape: LinearShape, x: int, hiding_bits: int) -> Convolution:
    layer = paper_layer(shape, 1, 8192)
    found = ensei.choose(sums_of(layer, x, 1), layer.transform_lengths, 8192, hiding_bits)
    parameters = Parameters(8192, DEFAULT_COEFFICIENT_BITS, found.encryption)
    sides = engine_of("tenseal").parties(parameters)
    return exchange(layer, random_rows(shape, 1, 0, 1), found, hiding_bits, sides)


@pytest.mark.parametrize(
    ("shape", "largest", "hiding_bits", "bits"),
    [(LinearShape(8, 8, 8, 8, 3, 1, 1), 255, 11, (16, 46)), (LinearShape(32, 32, 32, 32, 3, 1, 1), 7, 14, (12, 44))],
    ids=["8x8x8, 8-bit inputs", "32x32x32, 3-bit inputs"],
)
def test_encrypted_at_real_parameters(
    shape: LinearShape, largest: int, hiding_bits: int, bits: tuple[int, int]
) -> None:
    both = real(shape, largest, hiding_bits)
    assert (both.moduli.ntt.bit_length(), both.moduli.encryption.bit_length()) == bits
    x = np.random.default_rng(0).integers(-largest, largest + 1, shape.input_shape)
    found = both.run(x, np.zeros(shape.out_channels, dtype=np.int64))
    assert (found.output == convolve(x, both.rows, shape)).all()
    assert wrong_share(found.output, x, both.rows, both.layer) == 0
    assert wrong_share(found.output + 1, x, both.rows, both.layer) == 1


@pytest.mark.parametrize("plain_bits", [20, 46])
def test_small_weight_slots_bring_no_noise_budget(plain_bits: int) -> None:
    """The paper's claim for its own scheme does not hold for batched slots: what counts are the coefficients."""
    parameters = choose({7}, plain_bits)
    client, server = engine_of("tenseal").parties(parameters)
    t = parameters.plain_modulus
    fresh = server.receive(client.encrypt(sampling.uniform((8192,), t)))
    left = {}
    for bound in (2311, t):
        slots = sampling.uniform((8192,), bound)
        assert batching.slots_to_coefficients(slots, t).max() > 0.99 * t, "dense mod t either way"
        left[bound] = client._decryptor.invariant_noise_budget(server.multiply(fresh, server.encode(slots)))
    assert abs(left[2311] - left[t]) <= 1
    constant = server.multiply(fresh, server.encode(np.full(8192, 2310, dtype=np.uint64)))
    assert client._decryptor.invariant_noise_budget(constant) > left[t] + 10, "a small polynomial would help"


def test_equal_moduli_leave_more_noise_budget() -> None:
    """The same layer with p_N = p_A = p_E: a 20-bit modulus, perfect hiding, 50 bits more."""
    lifted = real(LinearShape(8, 8, 8, 8, 3, 1, 1), 255, 11)
    equal = choose({9}, 20).plain_modulus
    ensei.check(Moduli(equal, equal, equal), sums_of(lifted.layer, 255, 1), 40)
    parameters = Parameters(8192, DEFAULT_COEFFICIENT_BITS, equal)
    sides = engine_of("tenseal").parties(parameters)
    plain = exchange(lifted.layer, lifted.rows, Moduli(equal, equal, equal), 0, sides)
    x = np.full(lifted.layer.shape.input_shape, 255)
    results = {both: both.evaluate(*both.request(x)) for both in (plain, lifted)}
    budgets = [min(map(both.client._decryptor.invariant_noise_budget, found)) for both, found in results.items()]
    assert budgets[0] > budgets[1] + 45
