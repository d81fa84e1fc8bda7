"""A warm-up image before the first one, for which kernels are compiled or loaded: later timings are then typical.

CKKS has none: its keys are gigabytes.
"""

from collections.abc import Callable
from contextlib import closing

import numpy as np

from privcirnet.he.protocol.parties.session import Handler
from privcirnet.he.protocol.served import Served, ServedClient
from privcirnet.runs.answers import StepProgress, answers, no_progress


def rehearse(server: Served, engine: str, progress: StepProgress = no_progress) -> None:
    """Warm up both parties in this process, with a client of its own."""
    if server.known.warms_up:
        client = server.client(engine)
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
        server: session of the client.
        answered: function called after each image.
    """
    if not client.known.warms_up:
        return
    pixels = client.known.pixels
    image = np.full(pixels.shape, pixels.high)
    for _ in answers(client, server, [image], progress):
        answered()
