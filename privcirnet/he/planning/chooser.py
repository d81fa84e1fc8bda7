"""The choice of (n, q, t) from a program's proved bounds, and the reasons for it.

Every candidate is judged (:mod:`planning.noise_budget`); among those that fit, the one with the least predicted time
wins. The papers fix (n, q, t) by hand; docs/mathematics.md, "Noise" and "Truncation", has what they must satisfy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import (
    DEFAULT_COEFFICIENT_BITS,
    WIDE_COEFFICIENT_BITS,
    WIDE_RING_DEGREE,
    Parameters,
    ParameterSet,
)
from privcirnet.he.planning.noise_budget import STAGES, ParameterCandidate, Requirements, Verdict, judge
from privcirnet.he.planning.profile import in_words
from privcirnet.he.rlwe.parameters import MAX_LOG_Q

WIDE = ParameterSet(WIDE_RING_DEGREE, WIDE_COEFFICIENT_BITS)
SHORT_SETS = (ParameterSet(8192, (45, 45, 45, 45)), ParameterSet(8192, (60, 60, 60)))
"""Sets for exact steps, whose t is short: as fast as the first with fewer bytes, and a third faster. A random
truncation would fail more often."""
SETS = (
    ParameterSet(8192, DEFAULT_COEFFICIENT_BITS),
    ParameterSet(8192, (43, 43, 43, 43, 42)),
    ParameterSet(8192, (36, 36, 36, 36, 35, 35)),
    *SHORT_SETS,
    ParameterSet(16384, (60, 60, 60, 60)),
    WIDE,
    ParameterSet(16384, (49, 49, 49, 49, 49)),
)
"""Sets worth considering, all 128-bit. For one product they carry t of up to 48, 54, 57, 35, 28, 57, 60 and 60 bits;
the last also for sums of tens of thousands of products. n = 4096 has no room for flooding, n = 32768 no use."""


@dataclass(frozen=True)
class ParameterChoice:
    """A choice of parameters, and the alternatives.

    Attributes:
        verdicts: verdict of every candidate, the fastest first.
    """

    wants: Requirements
    verdicts: tuple[Verdict, ...]
    chosen: Verdict

    @property
    def set(self) -> ParameterSet:
        """The chosen n and q."""
        return self.chosen.option.parameters

    @property
    def parameters(self) -> Parameters:
        """The chosen n, q and t."""
        assert self.chosen.parameters is not None
        return self.chosen.parameters

    @property
    def cheapest(self) -> Verdict:
        """The fastest that fits."""
        return next(verdict for verdict in self.verdicts if verdict.fits)

    def reason(self) -> str:
        """Return the choice in one line."""
        if self.cheapest is not self.chosen:
            share = self.cheapest.option.seconds / self.chosen.option.seconds
            return f"{self.cheapest.option.parameters} would do in {share:.2f} of the time; he.ring_degree=0 chooses"
        faster = self.verdicts[: self.verdicts.index(self.chosen)]
        if not faster:
            return f"{self.set}: the fastest set, and it fits"
        nearest = max(faster, key=_closeness)
        return f"{self.set}: the fastest that fits; {nearest.option.parameters} does not ({nearest.binding})"

    def explain(self) -> list[str]:
        """Return a table in plain lines, one for each candidate, under what the program needs."""
        wants = self.wants
        needs = (
            f"needed: t of {wants.plain_bits} bits by {wants.needed_by} "
            f"(values {wants.value_bits}, truncation with he.failure_bits = {wants.failure_bits} "
            f"{wants.truncation_bits})"
        )
        header = ("set", "log q", "t", "noise budget", "failure_bits reached", "predicted", "verdict")
        rows = [header, *(_row(wants, verdict, verdict is self.chosen) for verdict in self.verdicts)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)
        return [needs, *lines]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"reason": self.reason(), "table": self.explain()}


def sets_for(ring_degree: int, coefficient_bits: Sequence[int] = ()) -> tuple[ParameterSet, ...]:
    """Return the sets that settings allow: the named one, the known ones of a ring degree, or all for n = 0."""
    if coefficient_bits:
        return (ParameterSet(ring_degree, tuple(coefficient_bits)),)
    sets = tuple(s for s in SETS if ring_degree in (0, s.ring_degree))
    if not sets:
        degrees = ", ".join(map(str, sorted({s.ring_degree for s in SETS})))
        raise RuleError(
            "he.ring_degree without he.coefficient_bits must be that of a known set",
            got=ring_degree,
            remedy=f"use {degrees}, or 0 to let the program's bounds choose",
        )
    return sets


def choose(
    wants: Requirements, options: Iterable[ParameterCandidate], fixed: ParameterSet | None = None
) -> ParameterChoice:
    """Return the fastest of some options that fits, for exact steps the shortest of the fastest; there must be one.

    Args:
        fixed: set to choose, which must be among the options; the others are judged for the explanation.

    Raises:
        DoesNotFit: none fits, or the fixed one does not; names what binds for the one that comes closest.
        RuleError: the fixed one is not secure, or its layers have no layout.
    """
    judged = (judge(wants, option) for option in options)
    # Without exact steps a longer modulus leaves room for a larger t.
    verdicts = tuple(sorted(judged, key=lambda v: (v.option.seconds, wants.exact and v.option.parameters.log_q)))
    eligible = [v for v in verdicts if fixed in (None, v.option.parameters)]
    fitting = [v for v in eligible if v.fits]
    if fitting:
        return ParameterChoice(wants, verdicts, fitting[0])
    closest = max(eligible, key=_closeness)
    assert closest.error is not None
    alternative = next((v.option.parameters for v in verdicts if v.fits), None)
    if alternative is None:
        raise closest.error
    raise type(closest.error)(
        closest.error.rule, got=closest.error.got, remedy=f"{alternative} would do: he.ring_degree=0 chooses it"
    )


def _closeness(verdict: Verdict) -> tuple[int, float]:
    """Return a key that is larger for a refused set closer to fitting."""
    return STAGES.index(verdict.stage), verdict.budget.left if verdict.budget else 0.0


def _row(wants: Requirements, verdict: Verdict, is_chosen: bool) -> tuple[str, ...]:
    option, parameters = verdict.option, verdict.parameters
    limit = MAX_LOG_Q.get(option.parameters.ring_degree, 0)
    result = "chosen" if is_chosen else "fits" if verdict.fits else verdict.binding
    return (
        str(option.parameters),
        f"{option.parameters.log_q} of {limit}",
        f"{parameters.plain_bits} bits" if parameters else "-",
        str(verdict.budget or "-"),
        f"{wants.reached(parameters.plain_modulus):.1f}" if parameters else "-",
        in_words(option.seconds, option.counted) if option.layers else "-",
        result,
    )
