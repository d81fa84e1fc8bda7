import numpy as np

from privcirnet.he import flooding as f
from privcirnet.he import modular


def ternary(primes, n):
    v = np.random.randint(-1, 2, n)
    return np.stack([modular.residues(v, p) for p in primes])


def centered_binomial(primes, n):
    v = np.random.binomial(21, 0.5, n) - np.random.binomial(21, 0.5, n)
    return np.stack([modular.residues(v, p) for p in primes])


def flooding(bits, primes, n):
    return f.sample(bits, primes, n)
