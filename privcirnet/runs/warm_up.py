"""One image before the first one, for which kernels are compiled or loaded: what images cost is then what they cost.

Not of CKKS, whose keys are gigabytes.
"""

from collections.abc import Callable
from contextlib import closing

import numpy as np

from privcirnet.he.program.program import Program
from privcirnet.he.protocol.leveled.bfv.leveled_program import Description, LeveledProgram
from privcirnet.he.protocol.leveled.session import LeveledClient
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.session import Handler
from privcirnet.he.protocol.served import Served, ServedClient
from privcirnet.runs.answers import StepProgress, answers, known_of, no_progress, pixel_range


def can_warm_up(program: object) -> bool:
    """Return whether a program, or its description, is one of those that an image warms up."""
    return isinstance(program, Program | LeveledProgram | Description)


def rehearse(server: Served, engine: str, progress: StepProgress = no_progress) -> None:
    """Warm up both parties in this process, with a client of its own."""
    known = known_of(server)
    if can_warm_up(known):
        client = (Client if isinstance(known, Program) else LeveledClient)(server.greeting(), engine)
        with closing(client), closing(server.session(client.keys())) as session:
            warm_up(client, session, progress)


def warm_up(
    client: ServedClient,
    server: Handler,
    progress: StepProgress = no_progress,
    answered: Callable[[], object] = lambda: None,
) -> None:
    """Run an image of the largest pixels.

    Args:
        server: the client's session.
        answered: called after each image.
    """
    known = known_of(client)
    if not can_warm_up(known):
        return
    pixels = pixel_range(known)
    image = np.full(pixels.shape, pixels.high << pixels.shift)
    for _ in answers(client, server, [image], progress):
        answered()
