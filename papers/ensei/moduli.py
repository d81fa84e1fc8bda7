"""ENSEI's own setting: transforms modulo a prime p_N that is smaller than the encryption's plain modulus p_E.

ENSEI (Bian et al., CVPR 2020, sections 4.1 and 5.2) has three moduli, p_E >= p_A >= p_N: of the encryption, of the
shares, of the transforms. It asks p_N >= max|u| max|w| f_h f_w (equation 20) and p_E >= p_N, nothing more, and gives
p_N = 2311, p_E = 12289 for binary weights (table 2).

Departure from the paper, because that is not enough. Ciphertexts compute mod p_E, so a slot holds the wanted
convolution's spectrum mod p_N only if either

* all three moduli are equal (which is what :mod:`layers.spectral_layer` does), or
* the *integers* under encryption never wrap mod p_E. Two shares' spectra add up to at most 2 (p_N - 1), times a
  weight's spectrum, over C channels: S <= B = 2 C (p_N - 1)^2. The mask is an integer r in [0, 2^kappa B), added
  without a wrap: B + 2^kappa B <= p_E. Client and server reduce S + r and -r mod p_N and transform those back.

The shares are then taken mod p_N (p_A = p_N): shares mod another p_A add up to u + p_A, whose spectrum is another.
Equation 20 lacks the sum over channels and the sign: p_N > 2 C max|u| max|w| f_h f_w.

What it costs: p_E is about 2^(kappa + 1) C p_N^2, where equal moduli need p_E = p_N only and hide perfectly; hiding is
2^-kappa a slot, and with p_E under 2^60 the 40 bits used elsewhere fit almost no layer.

What it brings: nothing in SEAL. The paper expects less noise from weights whose transformed values are under p_N. But
batching puts slots under p_N into a polynomial whose coefficients are dense mod p_E, and those multiply the noise.
Measured (n = 8192, log q = 218, bits of noise budget after one product): p_E of 20, 30, 46 bits leave 114, 94, 62, the
same with slots under 2311, under 147457 and under p_E; only a constant, a small polynomial, leaves 136, 127, 110.
What a small modulus does buy is a small p_E, and equal moduli have the smallest: a (32, 32, 32 -> 32, 3 x 3) layer with
3-bit inputs and binary weights has p_N = 4093, so p_E of 44 bits at kappa = 14, where 20 bits do with equal moduli.

Cost: as :mod:`spectral_layer` with the same layout. Meant for convolutions at block size 1; other block sizes work too.
"""

import math
from dataclasses import dataclass

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import MAX_PLAIN_BITS
from privcirnet.he.layers import spectral_layer
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Integers, Residues


@dataclass(frozen=True)
class Moduli:
    """Three primes.

    Raises:
        RuleError: not primes of at most 60 bits with p_N <= p_A <= p_E.
    """

    ntt: int
    sharing: int
    encryption: int

    def __post_init__(self) -> None:
        ordered = 2 < self.ntt <= self.sharing <= self.encryption < 1 << MAX_PLAIN_BITS
        if not ordered or not all(map(modular.is_prime, (self.ntt, self.sharing, self.encryption))):
            raise RuleError(
                f"moduli must be odd primes with p_N <= p_A <= p_E under 2^{MAX_PLAIN_BITS}",
                got=self,
                remedy="let ensei.choose find them",
            )

    @property
    def lifted(self) -> bool:
        """Whether ciphertexts carry integers instead of residues: not all moduli are equal."""
        return self.ntt < self.encryption


@dataclass(frozen=True)
class Sums:
    """What a layer adds up.

    Attributes:
        channels: C, input channels of the stride-1 convolution: those of the layer times its phase images.
        taps: f_h f_w, weights of one channel of one output.
    """

    channels: int
    taps: int
    largest_input: int
    largest_weight: int

    @property
    def largest_output(self) -> int:
        """Bound on |y|."""
        return self.channels * self.taps * self.largest_input * self.largest_weight


def largest_slot(ntt: int, channels: int) -> int:
    """Return the bound B = 2 C (p_N - 1)^2 on the integer in any slot of a result.

    Args:
        channels: C.
    """
    return 2 * channels * (ntt - 1) ** 2


def mask_range(ntt: int, channels: int, hiding_bits: int) -> int:
    """Return 2^kappa B: masks are uniform under it.

    Args:
        channels: C.
    """
    return largest_slot(ntt, channels) << hiding_bits


def mask_bound(moduli: Moduli, channels: int, hiding_bits: int) -> int:
    """Return what the masks are uniform under that the server *adds* to every slot of a result, used or not.

    Args:
        moduli: the three primes.
        channels: C.
        hiding_bits: kappa; of no effect if all moduli are equal.
    """
    return mask_range(moduli.ntt, channels, hiding_bits) if moduli.lifted else moduli.encryption


def check(moduli: Moduli, sums: Sums, hiding_bits: int) -> None:
    """Raise unless the protocol is right, and hides to 2^-hiding_bits a slot, with these moduli.

    Args:
        moduli: the three primes.
        sums: of the layer.
        hiding_bits: kappa; of no effect if all moduli are equal, where hiding is perfect.

    Raises:
        RuleError: naming the condition.
    """
    if moduli.ntt <= 2 * sums.largest_output:
        raise RuleError(
            "p_N must be over twice the largest output, summed over channels and taps",
            got=f"{moduli.ntt} for outputs up to {sums.largest_output}",
            remedy="use a larger p_N or fewer bits",
        )
    if moduli.lifted and moduli.sharing != moduli.ntt:
        raise RuleError(
            "shares must be taken mod p_N: their transforms add up mod p_N only",
            got=f"p_A = {moduli.sharing}, p_N = {moduli.ntt}",
            remedy="use p_A = p_N",
        )
    most = largest_slot(moduli.ntt, sums.channels) + mask_range(moduli.ntt, sums.channels, hiding_bits)
    if moduli.lifted and most > moduli.encryption:
        raise RuleError(
            "no masked sum may wrap: 2 C (p_N - 1)^2 (1 + 2^hiding_bits) must be at most p_E",
            got=f"{most} for p_E = {moduli.encryption}",
            remedy="use a larger p_E, fewer hiding bits, or equal moduli",
        )


def choose(sums: Sums, lengths: set[int], ring_degree: int, hiding_bits: int) -> Moduli:
    """Return the smallest p_N that carries the transforms and the outputs, p_A = p_N, and the smallest p_E for them.

    Raises:
        RuleError: p_E would be over 60 bits.
    """
    ntt = _prime_over(2 * sums.largest_output, math.lcm(2, *lengths))
    most = largest_slot(ntt, sums.channels) + mask_range(ntt, sums.channels, hiding_bits)
    moduli = Moduli(ntt, ntt, _prime_over(max(most, ntt), 2 * ring_degree))
    check(moduli, sums, hiding_bits)
    return moduli


def equal(sums: Sums, lengths: set[int], ring_degree: int) -> Moduli:
    """Return three equal moduli: the smallest prime that carries the transforms, the slots and the outputs.

    Raises:
        RuleError: it would be over 60 bits.
    """
    prime = _prime_over(2 * sums.largest_output, math.lcm(2 * ring_degree, *lengths))
    return Moduli(prime, prime, prime)


def request_slots(layer: SpectralLayer, share: Residues, moduli: Moduli) -> Residues:
    """Return a party's share of the input as slots.

    Args:
        share: residues mod p_N, shape (C, H, W).
        moduli: the three primes.

    Returns:
        slots under p_N, shape (ciphertexts_in, n).
    """
    return layer.encode_input(share, moduli.ntt)


def weight_spectrum(layer: SpectralLayer, rows: Integers, moduli: Moduli) -> Residues:
    """Return the weights' spectra under p_N, for :func:`layers.spectral_layer.encode_weights`; the server's part.

    Args:
        rows: integer weights, the first row of each circulant block row, shape (K/b, C/groups, R, R).
        moduli: the three primes.
    """
    return spectral_layer.weight_spectrum(layer.layout, rows, moduli.ntt)


def finish_client(layer: SpectralLayer, slots: Residues, moduli: Moduli) -> Residues:
    """Return the client's share of the output.

    Args:
        slots: decrypted, integers under p_E, shape (ciphertexts_out, n).
        moduli: the three primes.

    Returns:
        residues mod p_N, shape (K, H', W').
    """
    return layer.decode_output(slots % np.uint64(moduli.ntt), moduli.ntt)


def finish_server(layer: SpectralLayer, mask: Residues, bias: Integers, moduli: Moduli) -> Residues:
    """Return the server's share of the output.

    Args:
        mask: what it added, uniform under :func:`mask_bound`, shape (ciphertexts_out, n).
        bias: integers, shape (K,).
        moduli: the three primes.

    Returns:
        residues mod p_N, shape (K, H', W').
    """
    share = finish_client(layer, mask, moduli)
    offset = np.broadcast_to(modular.residues(bias, moduli.ntt)[:, None, None], share.shape)
    return modular.subtract(offset, share, moduli.ntt)


def _prime_over(bound: int, multiple: int) -> int:
    """The smallest prime over a bound that is 1 mod ``multiple``."""
    candidate = bound // multiple * multiple + 1
    while candidate <= bound or not modular.is_prime(candidate):
        candidate += multiple
        if candidate >= 1 << MAX_PLAIN_BITS:
            raise RuleError(
                f"the plain modulus must have at most {MAX_PLAIN_BITS} bits",
                got=f"a prime over {bound} that is 1 mod {multiple}",
                remedy="use fewer hiding bits, fewer bits of weights and inputs, or equal moduli",
            )
    return candidate
