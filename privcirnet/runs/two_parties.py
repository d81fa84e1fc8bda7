"""Encrypted inference with both parties in this process."""

from collections.abc import Mapping

from privcirnet.errors import RuleError, listed
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.program import Program
from privcirnet.he.ring.modular import Residues
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import How


def run(
    program: Program,
    spectra: Mapping[str, Residues],
    images: Values,
    engine: str,
    weights_gb: float,
    *,
    check: bool,
) -> Values:
    """Return the results of images: integers, (N, classes).

    Args:
        spectra: weight spectra by node, if they were read.
        images: (N, C, H, W).
        weights_gb: of encoded weights that the server keeps, in 10^9 bytes.

    Raises:
        RuleError: a value is not the integer network's.
        WrongResult: a result is wider than right ones are.
    """
    found = evaluate(Interactive(program, spectra), images, How(engine, weights_gb, audited=check))
    if check and (wrong := {i: nodes[0] for i, nodes in enumerate(found.wrong) if nodes}):
        raise _wrong(program, wrong)
    if refused := next((answer.refused for answer in found.answers if answer.refused), None):
        raise refused
    return found.logits


def _wrong(program: Program, first: Mapping[int, str]) -> RuleError:
    """The first wrong node by image."""
    again = "run it again: masks wrap with the probability that failure_bits allows"
    beyond = "an image is beyond the measured bounds if it fails again: compile with images like it, or train longer"
    remedy = f"{again}; {beyond if program.bounds == 'measured' else 'report it if it fails again'}"
    got = listed([f"another from {name} on for image {i}" for i, name in first.items()])
    return RuleError("every value must be the integer network's", got=got, remedy=remedy)
