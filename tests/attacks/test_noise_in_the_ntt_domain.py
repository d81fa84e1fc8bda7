"""ENSEI's section 5.1 as printed, a s + e + delta u in the NTT domain: either it does not decrypt, or the key is found."""

import numpy as np

from privcirnet.he.bfv import batching
from privcirnet.he.ring import modular, sampling

N, P_E = 2048, 12289
Q = modular.largest_prime(60, 2 * N)
DELTA, LARGEST = Q // P_E, 21
"""The scale of a plaintext, and the largest coefficient of an error of SEAL's."""


def small(size):
    return np.random.default_rng(0).integers(-LARGEST, LARGEST + 1, size)


def decoded(phase):
    """What is nearest to a value that is delta u plus little."""
    return np.array([(int(x) * P_E + Q // 2) // Q % P_E for x in phase])


def test_an_error_with_small_coefficients_hides_what_was_embedded():
    """Its values are uniform mod q; the phase is what decryption leaves of the ciphertext, without a s."""
    spectrum = sampling.uniform((N,), P_E)
    error = batching.coefficients_to_slots(modular.residues(small(N), Q), Q)
    scaled = modular.multiply(spectrum, np.full(N, DELTA, dtype=np.uint64), Q)
    assert (decoded(modular.add(scaled, error, Q)) == spectrum).mean() < 0.01
    assert (decoded(modular.add(scaled, modular.residues(small(N), Q), Q)) == spectrum).all()


def test_an_error_with_small_values_gives_the_key_away():
    """Each value is a line in one unknown: two encryptions of zero, such as a public key is made of, and 43 guesses."""
    key, first, second = (sampling.uniform((N,), Q) for _ in range(3))
    errors = small((2, N))
    seen = [
        modular.add(modular.multiply(a, key, Q), modular.residues(e, Q), Q)
        for a, e in zip((first, second), errors, strict=True)
    ]
    inverse = np.array([pow(int(a), -1, Q) for a in first], dtype=np.uint64)
    found = np.zeros(N, dtype=np.uint64)
    for guess in range(-LARGEST, LARGEST + 1):
        error = modular.residues(np.full(N, guess), Q)
        candidate = modular.multiply(modular.subtract(seen[0], error, Q), inverse, Q)
        left = modular.centered(modular.subtract(seen[1], modular.multiply(second, candidate, Q), Q), Q)
        right = np.abs(left) <= LARGEST
        found[right] = candidate[right]
    assert (found == key).all()
