"""Load on a running server: many clients at once, each in a process of its own, and what they see."""

import multiprocessing
import queue
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any, NamedTuple

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.protocol.one_message.session import OneMessageClient
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.system import threads
from privcirnet.runs.answers import PreparedStock, requests
from privcirnet.runs.compiled import read_mode
from privcirnet.service.access import ClientAccess
from privcirnet.service.client import Retries, ServiceClient

_CONTRAST = 8
"""Random images have this part of the range: noise at full contrast is beyond bounds that were measured on images."""
_MEMORY = "process_resident_memory_bytes"
_READY_S = 60.0
"""Seconds that a client which is connected waits for the others."""
_STILL_S = 0.1
"""Seconds without an answer, after which it is looked whether the clients live."""
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class LoadTask:
    """What each client does.

    Attributes:
        tls: the client's folder; None for plain text.
        served: name of the program; "" for the only one.
        program: folder whose integer network the answers are compared with; None: they are not.
        mode: of the server's program.
        retries: of each connection and image, see :class:`service.client.Retries`.
        prepare: inferences that each client keeps prepared; 0: none.
    """

    address: tuple[str, int]
    tls: Path | None
    served: str
    engine: str
    seconds: float
    program: Path | None
    mode: str = "interactive"
    retries: int = 0
    prepare: int = 0

    def connect(self) -> ServiceClient:
        """Return a connection of a client of its own.

        Raises:
            RuleError: there is no server, or it refuses; its program is of the other mode.
        """
        party, access = OneMessageClient if self.mode == "ckks" else Client, ClientAccess.of(self.tls)
        named, retries = {"access": access, "program": self.served}, Retries(self.retries)
        return ServiceClient(self.address, self.engine, **named, party=party, retries=retries)


class Sample(NamedTuple):
    """One image, or one error.

    Attributes:
        ended: seconds since the clients began.
        error: the rule that was broken; "" for an answer.
        same: whether the class is the integer network's; None: not compared.
        off: greatest difference of a logit from the integer network's, as a part of their range; None: not compared.
    """

    client: int
    ended: float
    seconds: float
    error: str = ""
    same: bool | None = None
    off: float | None = None
    prepared: bool = False


def load(task: LoadTask, clients: int, metrics: str, progress: Callable[[Sample], object]) -> dict[str, Any]:
    """Return what a server does under load, as plain data for JSON.

    Args:
        metrics: URL of the server's metrics, for its memory; "" for none.

    Raises:
        RuleError: the first client cannot connect, or the metrics cannot be read.
    """
    with task.connect():
        pass  # a mistake is one line here
    context = multiprocessing.get_context("spawn")
    channel: Queue[Sample] = context.Queue()
    given = task, max(threads.cores() // clients, 1), context.Barrier(clients), channel
    processes = [context.Process(target=_client, args=(number, *given), daemon=True) for number in range(clients)]
    for process in processes:
        process.start()
    samples, memory = list[Sample](), list[tuple[float, float]]()
    for sample in _told(processes, channel):
        samples.append(sample)
        progress(sample)
        if metrics and (not memory or sample.ended - memory[-1][0] >= 1):
            memory.append((sample.ended, _resident(metrics)))
    for process in processes:
        process.join()
    crashed = sum(process.exitcode != 0 for process in processes)
    return {**summary(samples, task.seconds, memory), "crashed": crashed}


def _told(processes: Sequence[BaseProcess], channel: "Queue[Sample]") -> Iterator[Sample]:
    """Yield what the clients tell until all of them have ended, those that were killed, too."""
    running = True
    while running:
        running = any(process.is_alive() for process in processes)  # first: what they told is in the channel then
        with suppress(queue.Empty):
            while True:
                yield channel.get(timeout=_STILL_S if running else 0)


def summary(samples: list[Sample], seconds: float, memory: list[tuple[float, float]]) -> dict[str, Any]:
    """Return what the clients saw: plain data for JSON.

    Args:
        memory: (seconds since the begin, bytes of the server) now and then.
    """
    answers = [sample for sample in samples if not sample.error]
    times = np.array([sample.seconds for sample in answers] or [np.nan])
    compared = [sample.same for sample in answers if sample.same is not None]
    end = max((sample.ended for sample in samples), default=seconds)
    late = [size for when, size in memory if when >= end / 5]
    return {
        "images": len(answers),
        "images_of_clients": dict(sorted(Counter(sample.client for sample in answers).items())),
        "images_per_second": len(answers) / end,
        "seconds": {f"p{p}": float(np.percentile(times, p)) for p in PERCENTILES} | {"max": float(times.max())},
        "prepared": sum(sample.prepared for sample in answers),
        "errors": dict(Counter(sample.error for sample in samples if sample.error)),
        "compared": len(compared),
        "same_class": sum(map(bool, compared)),
        "largest_difference": max((sample.off for sample in answers if sample.off is not None), default=None),
        "server_bytes": [size for _, size in memory],
        "server_growth": max(late) / late[0] - 1 if late else None,
    }


def _client(number: int, task: LoadTask, count: int, ready: Barrier, channel: "Queue[Sample]") -> None:
    """One client's process, on so many threads; it asks once all of them are connected."""
    threads.use(count)
    random, parent, together = np.random.default_rng(number), multiprocessing.parent_process(), False
    clear = read_mode(task.program, task.mode).clear if task.program else None
    began = time.monotonic()
    while time.monotonic() < began + task.seconds and parent is not None and parent.is_alive():
        try:
            with task.connect() as remote:
                if not together:
                    with suppress(BrokenBarrierError):  # one of them cannot connect: the others go on
                        ready.wait(_READY_S)
                    together, began = True, time.monotonic()
                tell = partial(_tell, channel, number, began)
                _images(task, remote, random, clear, began + task.seconds, tell)
        except RuleError as error:
            if not together:
                ready.abort()
            channel.put(Sample(number, time.monotonic() - began, 0.0, error.rule))
            time.sleep(getattr(error, "retry_after_s", 0) or 1)


def _tell(channel: "Queue[Sample]", number: int, began: float, *facts: Any) -> None:
    channel.put(Sample(number, time.monotonic() - began, *facts))


def _images(
    task: LoadTask,
    remote: ServiceClient,
    random: Any,
    clear: Callable[[np.ndarray], np.ndarray] | None,
    end: float,
    report: Callable[..., object],
) -> None:
    """Image after image until the time is over."""
    pixels = remote.party.known.pixels
    low, high = pixels.low // _CONTRAST, max(pixels.high // _CONTRAST, 1)
    ahead = PreparedStock(task.prepare, remote.store, True, remote.reopen)
    while time.monotonic() < end:
        images = random.integers(low, high + 1, (1, *pixels.shape))
        ((request, (answer,)),) = requests(remote.party, remote, images, ahead=ahead, persist=remote.persist)
        if answer.refused or clear is None:
            report(answer.seconds, answer.refused.rule if answer.refused else "", None, None, answer.prepared)
            continue
        with threads.one_thread():
            exact = clear(request)
        off = float(np.abs(answer.logits - exact).max() / max(np.ptp(exact), 1e-9))
        report(answer.seconds, "", bool(exact.argmax() == answer.logits.argmax()), off, answer.prepared)


def _resident(url: str) -> float:
    """Bytes of the server's memory, from its metrics."""
    try:
        with urllib.request.urlopen(url, timeout=5) as page:
            lines = page.read().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(_MEMORY))
    except (OSError, ValueError, StopIteration) as problem:
        got, remedy = f"{url}: {problem}", "start the server with metrics=127.0.0.1:9090"
        raise RuleError("metrics= must be the URL of a server's metrics", got=got, remedy=remedy) from None
