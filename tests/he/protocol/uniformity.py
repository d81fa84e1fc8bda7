"""Whether what a party sees is uniform."""

import numpy as np

from privcirnet.he.ring import modular
from tests.conftest import WHOLE

REPLIES, BUCKETS = 480 if WHOLE else 160, 16
LIMIT = BUCKETS + 12 * np.sqrt(2 * BUCKETS)
"""Chi-square with 15 degrees of freedom is over it with probability under 1e-10."""


def worst_chi_square(samples: np.ndarray, t: int) -> float:
    """Over columns of (replies, columns): uniform in [0, t) or not, in equal intervals."""
    bucket = samples * np.uint64(BUCKETS) // np.uint64(t)
    counts = np.stack([(bucket == i).sum(axis=0) for i in range(BUCKETS)])
    expected = len(samples) / BUCKETS
    return float(((counts - expected) ** 2 / expected).sum(axis=0).max())


def pairwise(samples: np.ndarray, t: int) -> np.ndarray:
    """Differences of every two columns."""
    first, second = np.triu_indices(samples.shape[1], 1)
    return modular.subtract(samples[:, first], samples[:, second], t)
