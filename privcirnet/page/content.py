"""What the page offers and says of a program: its rounds, how a picture becomes its pixels, test images, classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcirnet.data.picture import LIGHT_ON_DARK, Preparation
from privcirnet.errors import RuleError
from privcirnet.he.params.security import SECURITY_BITS
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.exchange import RoundPlan
from privcirnet.he.protocol.exchanges import exchanges_of
from privcirnet.pipeline.answers import name_of

_KINDS = {"conv": "convolution", "gemm": "linear", "depthwise": "depthwise convolution", "square": "squares"}
"""What rounds are called; functions that the client computes are called by their own names."""


@dataclass(frozen=True)
class TestImages:
    """Images of the data set to choose from.

    Attributes:
        pixels: integers (N, C, H, W).
        labels: of each.
    """

    __test__ = False  # of pytest

    pixels: NDArray[np.integer[Any]]
    labels: Sequence[int]


@dataclass(frozen=True)
class Content:
    """What the page knows besides the server's greeting.

    Attributes:
        data: name of the data set.
        place: where the server is, in words.
        encrypted: whether ciphertexts hide anything; a rehearsal's do not.
        classes: names by label; empty where nobody knows them.
        tests: some test images; None where there are none.
        notes: what a person should know besides.
    """

    data: str
    place: str
    encrypted: bool = True
    classes: Sequence[str] = ()
    tests: TestImages | None = None
    notes: Sequence[str] = field(default_factory=tuple)

    def name(self, label: int) -> str:
        """Return the name of a class.

        Args:
            label: from 0.
        """
        return self.classes[label] if label < len(self.classes) else f"class {label}"

    def check(self, program: Program) -> None:
        """Raise unless the data set can be the program's.

        Args:
            program: with or without weights.

        Raises:
            RuleError: its images have another size, or there are more or fewer classes than logits.
        """
        remedy = f"give the program's data set with data=, got data={self.data}"
        if self.tests is not None and (shape := self.tests.pixels.shape[1:]) != program.nodes[0].shape:
            got = f"{shape} for {program.nodes[0].shape}"
            raise RuleError("test images must have the size of the program's", got=got, remedy=remedy)
        if self.classes and len(self.classes) != (logits := prod(program.output.shape)):
            got = f"{len(self.classes)} for {logits} logits"
            raise RuleError("there must be a class for each logit", got=got, remedy=remedy)

    def facts(self) -> dict[str, Any]:
        """What the page shows at its start, as plain data."""
        labels = [] if self.tests is None else self.tests.labels
        return {
            "data": self.data,
            "place": self.place,
            "encrypted": self.encrypted,
            "notes": list(self.notes),
            "tests": [self.name(label) for label in labels],
        }


def preparation_for(program: Program, data: str) -> Preparation:
    """Return how any picture becomes the pixels of a program.

    Args:
        program: with or without weights.
        data: name of the data set that it was made for.

    Raises:
        RuleError: its input is not a square picture's pixels from 0 up.
    """
    source = program.nodes[0]
    assert isinstance(source.operation, Input)
    if source.operation.low != 0:
        got = f"[{source.operation.low}, {source.operation.high}]"
        remedy = "prepare images of this network in a program of your own"
        raise RuleError("a picture can become pixels from 0 up", got=got, remedy=remedy)
    return Preparation(source.shape, source.operation.high, data in LIGHT_ON_DARK)


def described(program: Program) -> dict[str, Any]:
    """Return what the page shows of a program, as plain data.

    Args:
        program: with or without weights.
    """
    parameters = program.parameters
    return {
        "rounds": rounds(program),
        "shape": list(program.nodes[0].shape),
        "revealed": program.revealed,
        "parameters": f"BFV of {SECURITY_BITS} bits, n = {parameters.ring_degree}, log q = {parameters.log_q}",
    }


def rounds(program: Program, prepared: bool = False) -> list[dict[str, str]]:
    """Return what the rounds of an image are, as plain data.

    Args:
        program: with or without weights.
        prepared: whether its encrypted work was done before.
    """
    names, found = {node.name: name_of(node) for node in program.nodes}, exchanges_of(program)
    if not prepared:
        each = [{"name": names[name], "what": in_words(exchange.plan)} for name, exchange in found.items()]
        return [*each, {"name": "result", "what": "the server’s share of the logits"}]
    asking = [{"name": names[name], "what": in_words(e.plan)} for name, e in found.items() if e.online.asked]
    return [{"name": "image", "what": "less the client’s random share"}, *asking]


def in_words(plan: RoundPlan) -> str:
    """Return what a round computes.

    Args:
        plan: of the round.

    >>> in_words(RoundPlan("conv", "nested", block_size=8))
    'convolution, b = 8'
    """
    if plan.shares_down and not plan.ciphertexts_down:
        return f"{plan.kind}, computed by the client in clear"
    kind = _KINDS.get(plan.kind, plan.kind)
    return f"{kind}, b = {plan.block_size}" if plan.block_size > 1 else kind
