"""Bits of security of the learning parity with noise that silent transfers rest on, by each attack that has a formula.

python benchmarks/lpn_security.py [--trees 2048 --depth 11 --seed 18]

Each line is one attack, each column one set of parameters: the package's, Ferret's and later ones of emp-ot.
Costs are base 2 logarithms of word operations; memory is free. Where a formula of a paper charges for the elimination
of a matrix more than sparse rows need (Wiedemann), the smaller figure counts.

A code of ten rows each is sparse, and a sparse code has parts that are denser than itself: rows that touch only some of
the columns. Those are an instance of their own, with fewer unknowns, and every attack is computed for them, too:
"random" is what a random choice of columns gives, "densest" what no choice can do better than (by counting: with fewer
columns not one choice is expected to hold as many rows). Nobody knows how to find the densest; it is a bound.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy import typing as npt
from scipy.special import gammaln

from privcirnet.he.mpc.kernels.sparse_code import LOCALITY
from privcirnet.he.mpc.ot.silent import CODE

Grid = npt.NDArray[np.longdouble]
OTHERS = {
    # Yang, Weng, Lan, Zhang, Wang: "Ferret", CCS 2020; as emp-ot's ferret_b13 was.
    "Ferret": (1280, 13, 452_000),
    # github.com/emp-toolkit/emp-ot, emp-ot/ferret/constants.h, as read in 2026.
    "emp b13": (1280, 13, 1 << 19),
    "emp b12": (1520, 12, 1 << 18),
    "emp b11": (1170, 11, 1 << 17),
}


@dataclass(frozen=True)
class Noise:
    """An instance: ``n`` rows in ``t`` blocks of ``block``, ``k`` unknowns, an error with ``rate`` in a row.

    ``block`` is less than 1 / rate in a part of a code.
    """

    n: float
    k: float
    t: int
    rate: float

    @property
    def block(self) -> float:
        return self.n / self.t

    def part(self, columns: float) -> "Noise":
        """The rows that touch only a fraction of the columns."""
        return Noise(self.n * columns**LOCALITY, self.k * columns, self.t, self.rate)


def log_binomial(n: float, m: float) -> float:
    """Return the logarithm of n over m."""
    return float(gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m + 1)) / np.log(2)


def elimination(k: float) -> float:
    """Solve k equations: by Strassen's algorithm, or 2 k products with a sparse matrix (Wiedemann)."""
    return min(2.8 * np.log2(k), 2 * np.log2(k) + np.log2(2 * LOCALITY))


def pooled_gauss(x: Noise) -> float:
    """Liu, Wang, Yang, Yu: "The hardness of LPN over any integer ring and field for PCG applications".

    EUROCRYPT 2024, eprint 2022/712, page 37; regular noise is exact noise with t rows and unknowns less.
    """
    n, k = x.n - x.t, x.k - x.t
    return elimination(k) + log_binomial(n, x.t) - log_binomial(n - k, x.t)


def statistical_decoding(x: Noise) -> float:
    """The same, page 39, with the guess of version 2.0."""
    n, k = x.n - x.t, x.k - x.t - pooled_gauss(x)
    return float(np.log2(k + 1) + 2 * x.t * np.log2((n - x.t + 1) / (n - k - x.t)))


def information_set(x: Noise) -> float:
    """Stern's: k rows with p errors, half of them in each half, which collide in l bits of further rows.

    As theorem 14 of the same paper, with errors of each row by themselves, which a part of a code has.
    """
    mean, best = x.k * x.rate, np.inf
    for p in range(0, 14, 2):
        halves = 2 * (p / 2 * np.log2(mean / 2) - float(gammaln(p / 2 + 1)) / np.log(2))
        side, solve = log_binomial(x.k / 2, p / 2), elimination(x.k)
        lists = min(np.logaddexp2(side + 1, 2 * side - collision) for collision in range(0, 200, 4))
        best = min(best, np.logaddexp2(solve, lists) + mean / np.log(2) - halves)
    return float(best)


def regular_information_set(x: Noise) -> float:
    """Esser and Santini: "Not just regular decoding", CRYPTO 2024, eprint 2023/1568, appendix A.1.

    By enumeration, and by representations of depth two. Here v rows of each block of b are in the set.
    """
    k, half, best = x.k - x.t, x.t / 2, np.inf
    for p in range(0, 24, 2):
        for extra in range(0, 12, 2):
            weight = p / 2 + extra if extra else p
            shown = 2 * (log_binomial(p / 2, p / 4) + log_binomial(half - p / 2, extra / 2)) if extra else 0.0
            for collision in range(0, 160, 4):
                v = (k + collision) / x.t
                side = log_binomial(half, weight / 2) + np.log2(v) * weight / 2
                lists = [side, 2 * side - collision]
                if extra:
                    middle = 2 * side - shown
                    lists = [side + 2, middle + 1, 2 * middle - (collision - shown)]
                good = 2 * log_binomial(half, p / 2) + p * np.log2(v * x.rate) + (x.t - p) * np.log2(1 - v * x.rate)
                best = min(best, max(elimination(k), *lists) - good)
    return float(best)


class _Algebra:
    """Sizes of the systems of equations of regular noise, if ``mu`` rows of each of ``f`` blocks are guessed right.

    Briaud and Oygarden: "A new algebraic approach to the regular syndrome decoding problem", EUROCRYPT 2023, eprint
    2023/176, over two elements; all of the last axis are degrees 2 to 4.
    """

    def __init__(self, x: Noise) -> None:
        f = np.unique(np.r_[0 : x.t + 1 : max(1, x.t // 128), x.t]).astype(np.longdouble)[:, None]
        mu = np.arange(0, int(x.block) - 1, max(1, int(x.block) // 512)).astype(np.longdouble)[None]
        self.unknowns = x.k + 1 - f * mu
        self.success = np.where(self.unknowns > 0, f * np.log2(1 - mu * x.rate), -np.inf)
        guessed, others = _powers(x.block - mu - 1, f), _powers(np.full_like(mu, x.block - 1), x.t - f)
        r = np.longdouble(x.n - x.k)
        equations = [1, -(r - 1), r * (r - 1) / 2, -(r + 1) * r * (r - 1) / 6, (r + 2) * (r + 1) * r * (r - 1) / 24]
        monomials = _product(guessed, others)
        left = _product(monomials, [np.full_like(mu, c) for c in equations])
        self.monomials = [sum(monomials[1 : d + 1]) for d in (2, 3, 4)]
        self.left = [np.maximum(sum(left[1 : d + 1]), 1) for d in (2, 3, 4)]
        solved = [(left[d] < 1) | (sum(left[2 : d + 1]) < 1) for d in (2, 3, 4)]
        self.solved = [np.any(solved[:i], axis=0) & (self.unknowns > 0) for i in (1, 2, 3)]


def _powers(base: Grid, count: Grid) -> list[Grid]:
    """The first coefficients of (1 + base z)^count."""
    found: list[Grid] = [np.ones(np.broadcast(base, count).shape, np.longdouble)]
    for i in range(4):
        found.append(found[-1] * base * (count - i) / np.longdouble(i + 1))
    return found


def _product(a: list[Grid], b: list[Grid]) -> list[Grid]:
    return [sum(a[i] * b[d - i] for i in range(d + 1)) for d in range(5)]  # pyright: ignore[reportReturnType]


def algebraic(x: Noise) -> float:
    """The attack of Briaud and Oygarden."""
    system, best = _Algebra(x), np.inf
    for monomials, solved in zip(system.monomials, system.solved, strict=True):
        cost = 2 * np.log2(monomials) + np.log2(3 * np.maximum(system.unknowns, 1)) - system.success
        best = min(best, float(np.min(np.where(solved, cost, np.inf))))
    return best


def algebraic_twice(x: Noise) -> float:
    """AGB 2.0, eprint 2025/1476: a first guess is solved as far as it goes, what is left under guesses that go on."""
    system, best = _Algebra(x), np.inf
    for monomials, left, solved in zip(system.monomials, system.left, system.solved, strict=True):
        rest = np.maximum(monomials - left, 1)
        first = np.minimum(
            np.log2(3 * np.maximum(system.unknowns, 1)) + 2 * np.log2(monomials),
            np.log2(monomials) + 2 * np.log2(rest) - np.log2(np.maximum(np.log2(rest), 1)),
        )
        second = np.log2(5.64) + 2.8 * np.log2(np.minimum(left, rest))
        further = np.where(solved, system.success, -np.inf)
        for axis in (0, 1):
            further = np.flip(np.maximum.accumulate(np.flip(further, axis), axis), axis)
        cost = np.logaddexp2(np.maximum(first, 0) - system.success, np.maximum(second, 0) - further)
        best = min(best, float(np.min(np.where(np.isfinite(further), cost, np.inf))))
    return best


def hybrid(x: Noise) -> float:
    """Linearization: u or u + 1 rows of most blocks are guessed free of errors, q blocks tried, products eliminated.

    The formula that emp-ot's constants were checked by (hybrid_2_quick); here linear equations are eliminated for free.
    With its price for that, 850 blocks of 1024 and 2^16 unknowns have 128.7 bits, as its constants.h says.
    """
    best, b = np.inf, x.block
    for u in range(0, max(1, int(min(b - 4, 2 * x.k / x.t)))):
        q = np.arange(0, 33)[:, None].astype(float)
        f = np.arange(0, x.t, max(1, x.t // 64))[None].astype(float)
        rest = x.t - f - q
        unknowns = x.k - x.t - (u + 1) * f - rest * u
        tried = (b - 1) * q
        v = np.maximum(unknowns - tried, 1)
        products = rest * (b - u - 2) * (b - u - 1) / 2 + f * (b - u - 2) * (b - u - 3) / 2
        success = f * np.log2(1 - (u + 1) * x.rate) + rest * np.log2(1 - u * x.rate)
        once = v**4 * np.maximum(unknowns, 1) ** 2 / 8 / np.log2(np.maximum(v**2 / 2, 2))
        each = 1.25 * (2 * v * v * tried + v * tried**2) + (2.5 * v) ** 3 / np.log2(np.maximum(2.5 * v, 2))
        cost = np.logaddexp2(np.log2(once), np.log2(each) - q * np.log2(x.rate)) - success
        solvable = (rest > 0) & (unknowns >= tried) & (v <= np.sqrt(2 * np.maximum(products, 2)) - 2)
        best = min(best, float(np.min(np.where(solvable, cost, np.inf))))
    return best


ATTACKS: dict[str, Callable[[Noise], float]] = {
    "pooled Gauss": pooled_gauss,
    "statistical decoding": statistical_decoding,
    "information sets": information_set,
    "information sets, regular": regular_information_set,
    "algebraic": algebraic,
    "algebraic, twice": algebraic_twice,
    "hybrid": hybrid,
}


def densest(rows: float) -> float:
    """Return the least fraction of columns that may hold as many rows of a random code, which has so many a column.

    Of all choices of a fraction x, exp(k h(x)), each holds x k of all k rows with exp(-k rows D), D the divergence of
    x / rows from x^10 (Chernoff's bound).
    """
    x = np.linspace(0.2, 0.999, 8000)
    choices = -x * np.log(x) - (1 - x) * np.log1p(-x)
    wanted, expected = x / rows, x**LOCALITY
    divergence = wanted * np.log(wanted / expected) + (1 - wanted) * np.log((1 - wanted) / (1 - expected))
    return float(x[(wanted <= expected) | (rows * divergence < choices)][0])


def bits(trees: int, depth: int, seed: int) -> dict[str, float]:
    """Return the bits by each attack on the whole code, and the least of all on its parts."""
    x = Noise(float(trees << depth), float(seed), trees, 2.0**-depth)
    found = {name: attack(x) for name, attack in ATTACKS.items()}
    random = (x.k / x.n) ** (1 / (LOCALITY - 1))
    parts = [x.part(columns) for columns in np.linspace(random, 1, 12)[1:-1]]
    found["all, on parts"] = min(attack(part) for part in parts for attack in ATTACKS.values())
    for name, columns in (("random part", random), ("densest part", densest(x.n / x.k))):
        found[f"information sets, {name}"] = information_set(Noise(x.k * columns, x.k * columns, trees, x.rate))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=CODE.trees)
    parser.add_argument("--depth", type=int, default=CODE.depth)
    parser.add_argument(
        "--seed", type=int, default=CODE.seed.bit_length() - 1, help="log2 of the rows that are encoded"
    )
    asked = parser.parse_args()
    columns = {"these": (asked.trees, asked.depth, 1 << asked.seed), **OTHERS}
    table = {name: bits(*sizes) for name, sizes in columns.items()}
    print(f"{'bits by':34}" + "".join(f"{name:>10}" for name in columns))
    for attack in table["these"]:
        print(f"{attack:34}" + "".join(f"{found[attack]:10.1f}" for found in table.values()))
    print(f"{'least':34}" + "".join(f"{min(found.values()):10.1f}" for found in table.values()))


if __name__ == "__main__":
    main()
