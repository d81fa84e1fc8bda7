"""A rehearsal of truncation on shares: a program in clear, truncated at random as both parties would.

Truncations are the one freedom that an encrypted inference has against the integer network (docs/mathematics.md,
"Truncation"): each value is rounded up or down by its masks. Guard bits make that harmless. Too few of them let a close
second win, and let an image explode now and then where squares follow one another. Here that is seen before anything
is encrypted, with the shares of the protocol itself.
"""

from dataclasses import dataclass

import numpy as np

from privcirnet.artifact.summaries import TruncationTrial
from privcirnet.he.layers.integer import Values
from privcirnet.he.mpc.local.parallel import truncate_client, truncate_server
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Truncate
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.rounds.answer import width
from privcirnet.he.ring import modular
from privcirnet.runs.progress import ProgressBar, silent


@dataclass(frozen=True)
class Trial:
    """Images to rehearse on.

    Attributes:
        images: integers, (N, C, H, W).
        logits: logits of the quantized network, (N, classes).
    """

    images: Values
    logits: np.ndarray


def rehearse(program: Program, trial: Trial, bar: ProgressBar = silent) -> TruncationTrial:
    """Return the effect of random truncations on images, each classified to nearest and at random, once.

    Images that go beyond the program's bound even if rounded to nearest are neither changed nor refused.

    Args:
        program: program whose truncations are all at random.
    """

    def truncate(node: Node, values: Values) -> Values:
        assert isinstance(node.operation, Truncate)
        return on_shares(values, node.operation.bits, program.parameters.plain_modulus, masks)

    masks = np.random.default_rng(0)  # nothing is hidden here
    changed, refused, rows = 0, 0, list[np.ndarray]()
    with bar("rehearsing truncations", len(trial.images)) as advance:
        for image in trial.images:
            want = interpret(program, image)[program.output.name]
            got = interpret(program, image, truncate)[program.output.name]
            if not _beyond(program, want):
                differs = bool(got.argmax() != want.argmax())
                changed, refused = changed + differs, refused + (not differs and _beyond(program, got))
            rows.append(got.reshape(-1) * 2.0**program.output.log_step)
            advance()
    logits, quantized = np.stack(rows), trial.logits
    far, size = np.abs(logits - quantized).max(axis=1), np.abs(quantized).max(axis=1)
    shares = far / np.where(size > 0, size, 1)
    usual = shares[np.isfinite(shares)]  # an image beyond the bounds may have no logits at all
    differ = int((logits.argmax(axis=1) != quantized.argmax(axis=1)).sum())
    return TruncationTrial(len(rows), changed, refused, differ, float(np.median(usual)) if len(usual) else None)


def _beyond(program: Program, answer: Values) -> bool:
    return width(answer) > program.output_bits > 0


def on_shares(values: Values, bits: int, t: int, masks: np.random.Generator) -> Values:
    """Truncate values as two parties with uniform masks would.

    Args:
        values: integers in (-t/2, t/2).
        masks: generator from which the server's share is drawn.

    Returns:
        floor or ceiling of the exact quotients, the ceiling with the probability of the part that is cut off; anything
        where shares wrap, with probability (|y| + 1) / t.
    """
    server = masks.integers(t, size=values.shape, dtype=np.uint64)
    client = modular.subtract(modular.residues(values, t), server, t)
    return modular.centered(modular.add(truncate_client(client, bits, t), truncate_server(server, bits), t), t)
