"""How often truncation on shares changes an answer: a program in clear, truncated at random as both parties would.

Truncations are the one freedom that an encrypted inference has against the integer network (docs/mathematics.md,
"Truncation"): each value is rounded up or down by its masks. Guard bits make that harmless. Too few of them let a close
second win, and let an image explode now and then where squares follow one another. Here that is seen before anything
is encrypted, with the shares of the protocol itself.
"""

from privcirnet.he.clear.elementwise import truncate_client, truncate_server
from privcirnet.he.encodings.integer import Values
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operations import Truncate
from privcirnet.he.program.program import Node, Program
from privcirnet.he.protocol.answer import width
from privcirnet.he.ring import modular, sampling
from privcirnet.pipeline.progress import Bar, silent


def rehearsed(program: Program, images: Values, bar: Bar = silent) -> dict[str, int]:
    """Classify images with truncations to nearest and at random, once each.

    Args:
        program: with weights.
        images: integers, (N, C, H, W).
        bar: shows progress.

    Returns:
        {"images": N, "changed": of them whose class random truncations change, "refused": of the others whose logits
        are then beyond the program's bound, so that a client refuses them}.
    """

    def truncate(node: Node, values: Values) -> Values:
        assert isinstance(node.operation, Truncate)
        return on_shares(values, node.operation.bits, program.parameters.plain_modulus)

    found = {"images": len(images), "changed": 0, "refused": 0}
    with bar("rehearsing truncations", len(images)) as advance:
        for image in images:
            want = interpret(program, image)[program.output.name]
            got = interpret(program, image, truncate)[program.output.name]
            changed = bool(got.argmax() != want.argmax())
            found["changed"] += changed
            found["refused"] += not changed and width(got) > program.output_bits > 0
            advance()
    return found


def on_shares(values: Values, bits: int, t: int) -> Values:
    """Truncate values as two parties with uniform masks would.

    Args:
        values: integers in (-t/2, t/2).
        bits: that are cut off.
        t: plain modulus.

    Returns:
        floor or ceiling of the exact quotients, the ceiling with the probability of the part that is cut off; anything
        where shares wrap, with probability (|y| + 1) / t.
    """
    server = sampling.uniform(values.shape, t)
    client = modular.subtract(modular.residues(values, t), server, t)
    return modular.centered(modular.add(truncate_client(client, bits, t), truncate_server(server, bits), t), t)
