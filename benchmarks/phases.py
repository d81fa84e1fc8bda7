"""The phases of one image between two processes: its preparation, with what was prepared, and without."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privcirnet.he.layers.integer import Values
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.session import Traffic, prepare
from privcirnet.he.ring.modular import Residues
from privcirnet.runs import interactive
from privcirnet.runs.answers import answers
from privcirnet.runs.parties import ServerProcess, ServerTask, start_server
from privcirnet.service.client import ServiceClient

TOGETHER = 8
"""Images that are prepared at once, where their messages are small enough."""


def noise(program: Program, seed: int = 0) -> Values:
    """Return noise in the middle of a program's range, which measured bounds carry."""
    source = program.nodes[0]
    assert isinstance(source.operation, Input)
    low, high = source.operation.low, source.operation.high
    middle, width = (low + high) // 2, max(1, (high - low) // 8)
    return np.random.default_rng(seed).integers(middle - width, middle + width, source.shape)


def worked(process: int | str) -> float:
    """Return the processor seconds of a process that runs."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def turn(remote: ServiceClient, image: Values, server: int, together: int = TOGETHER) -> dict[str, dict[str, float]]:
    """Run every phase once.

    Args:
        remote: connected, without prepared work.
        image: that fits the program.
        server: number of its process.
        together: most images to prepare at once; 1 for none together.

    Returns:
        by phase (preparation, online, and where it is possible several together): ``seconds``, those of the
        ``client``, those of both parties' ``processor``, ``bytes`` both ways, ``rounds``, of one image.
    """
    found = {"preparation": _prepared(remote, 1, server), "online": _image(remote, image, server)}
    several = min(remote.client.together, together)
    if several > 1:
        found["together"] = _prepared(remote, several, server)
        for _ in range(several):
            _image(remote, image, server)
    return found


def _prepared(remote: ServiceClient, count: int, server: int) -> dict[str, float]:
    before, started = _clocks(remote.client, server), time.perf_counter()
    traffic = prepare(remote.client, remote, count)
    one = _facts(traffic, time.perf_counter() - started, before, _clocks(remote.client, server))
    return {name: amount / count for name, amount in one.items()}


def _image(remote: ServiceClient, image: Values, server: int) -> dict[str, float]:
    before = _clocks(remote.client, server)
    (answer,) = answers(remote.client, remote, [image])
    assert answer.prepared, remote.client.dropped
    return _facts(answer.traffic, answer.seconds, before, _clocks(remote.client, server))


def _facts(
    traffic: list[Traffic], seconds: float, before: dict[str, float], after: dict[str, float]
) -> dict[str, float]:
    size, took = sum(each.up + each.down for each in traffic), {name: after[name] - before[name] for name in after}
    return {"seconds": seconds, **took, "bytes": size, "rounds": len(traffic)}


def _clocks(client: Client, server: int) -> dict[str, float]:
    """Seconds of the client's work so far, and of both processes on all processors."""
    own = sum(client.meter.seconds.values()) + sum(client.preparation.seconds.values())
    return {"client": own, "processor": worked("self") + worked(server)}


def wrong_nodes(program: Program, spectra: Mapping[str, Residues], image: Values, engine: str) -> list[str]:
    """Return the nodes whose value does not follow from their inputs', of a prepared image and of one that waits."""
    task, wrong = ServerTask(program, spectra, engine), list[str]()
    with start_server(task) as process, ServiceClient(process.address, engine) as remote:
        prepare(remote.client, remote)
        for _ in range(2):
            wrong += audited(program, remote, process, image)
    return wrong


def audited(program: Program, remote: ServiceClient, process: ServerProcess, image: Values) -> list[str]:
    """Run an image and return the nodes whose value is wrong, the logits among them."""
    (answer,) = answers(remote.client, remote, [image])
    values = interactive.reconstruct(program, remote.client.shares, process.report().seen)
    logits = [] if np.array_equal(values[program.output.name].reshape(-1), answer.logits) else ["logits"]
    return interactive.wrong_nodes(program, values) + logits


def connections(address: tuple[str, int], engine: str, count: int) -> list[dict[str, Any]]:
    """Return the seconds of connections with new keys, made, sent and loaded, and the bytes of the keys."""
    found = list[dict[str, Any]]()
    for _ in range(count):
        with ServiceClient(address, engine) as remote:
            found.append({"seconds": remote.seconds, "bytes": remote.bytes_keys})
    return found
