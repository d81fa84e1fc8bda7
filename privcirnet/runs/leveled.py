"""Leveled inference of many images, checked and measured: what infer.py mode=leveled does."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from privcirnet.he.circuits.weight_cache import WeightCache
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.wrong_result import WrongResult
from privcirnet.he.protocol.noninteractive.program import LeveledProgram
from privcirnet.he.protocol.noninteractive.rehearsal import Rehearsal
from privcirnet.he.protocol.noninteractive.session import LeveledClient, LeveledReport, LeveledServer
from privcirnet.he.protocol.parties.session import Handler, Traffic, run
from privcirnet.he.system import threads
from privcirnet.he.system.memory import peak_bytes
from privcirnet.runs.answers import Answer, Step, StepProgress, no_progress
from privcirnet.runs.infer import check_some
from privcirnet.runs.laps import Laps
from privcirnet.runs.leveled_results import LeveledEvaluation, LeveledInference
from privcirnet.runs.parties import Parties
from privcirnet.runs.server_process import ServerTask, start_server
from privcirnet.runs.throttle import throttled
from privcirnet.service.client import ServiceClient


def evaluate_leveled(
    program: LeveledProgram,
    images: Values,
    engine: str,
    progress: StepProgress = no_progress,
    cache: WeightCache | None = None,
    *,
    throttle: str = "",
) -> LeveledEvaluation:
    """Run both parties in this process on every image, and check every layer.

    Args:
        images: integers as the data set has them, (N, C, H, W).
        engine: one of :data:`circuits.bfv.noninteractive.interface.ENGINES`.
        progress: called after each image.
        cache: how much memory encoded weights may take; None: as much as they need.
        throttle: name of the link that messages are held up by; "" for none.

    Returns:
        the results.

    Raises:
        RuleError: there is no image, or one that does not fit the program.
    """
    check_some(images)
    started = time.perf_counter()
    server = LeveledServer(program, engine, watched=True, cache=cache)
    client = LeveledClient(server.greeting(), engine)
    keys = client.keys()
    session = server.session(keys)

    def report() -> LeveledReport:
        return LeveledReport(session.reveal(), session.meter, peak_bytes())

    setup = time.perf_counter() - started
    parties = Parties(client, throttled(session, throttle), report, setup, len(keys), throttle)
    return _audited(program, parties, images, progress)


def evaluate_leveled_apart(
    program: LeveledProgram,
    images: Values,
    engine: str,
    progress: StepProgress = no_progress,
    cache: WeightCache | None = None,
    *,
    throttle: str = "",
) -> LeveledEvaluation:
    """Run :func:`evaluate_leveled` with the server in a process of its own, and gRPC on loopback between the parties.

    Args:
        images: integers as the data set has them, (N, C, H, W).
        engine: one of :data:`circuits.bfv.noninteractive.interface.ENGINES`.
        progress: called after each image.
        cache: how much memory encoded weights may take; None: as much as they need.
        throttle: name of the link that messages are held up by; "" for none.

    Returns:
        the results.

    Raises:
        RuleError: as :func:`evaluate_leveled`, or the server's process ended.
    """
    check_some(images)
    started = time.perf_counter()
    task = ServerTask(program, {}, engine, cache.limit if cache else None, threads=threads.count())
    with start_server(task) as process, ServiceClient(process.address, engine, party=LeveledClient) as remote:
        setup, handler = time.perf_counter() - started, throttled(remote, throttle)
        report: Callable[[], Any] = process.report
        parties = Parties(remote.leveled, handler, report, setup, remote.bytes_keys, throttle, apart=True)
        return _audited(program, parties, images, progress)


def infer_leveled(
    remote: ServiceClient, images: Values, progress: StepProgress = no_progress, *, throttle: str = ""
) -> LeveledInference:
    """Have a server classify images.

    Args:
        images: integers as the data set has them, (N, C, H, W).
        progress: called after each image.
        throttle: name of the link that messages are held up by; "" for none.

    Returns:
        the results.

    Raises:
        RuleError: there is no image, or one that does not fit the program; the server refuses or is gone.
    """
    check_some(images)
    client, answers, laps = remote.leveled, list[Answer](), Laps()
    for _, some in leveled_answers(client, throttled(remote, throttle), images, progress):
        laps.add(client.meter.seconds, len(some))
        answers += some
    return LeveledInference(client, answers, remote.seconds, remote.bytes_keys, laps, throttle)


def _audited(
    program: LeveledProgram, parties: Parties[LeveledClient, LeveledReport], images: Values, progress: StepProgress
) -> LeveledEvaluation:
    rehearsal, report = Rehearsal(program), None
    integer: list[np.ndarray] = []
    wrong: list[list[str]] = []
    answers: list[Answer] = []
    client, of_client, of_server = parties.client, Laps(), Laps()
    for request, some in leveled_answers(client, parties.server, images, progress):
        report = parties.report()
        of_client.add(client.meter.seconds, len(some))
        of_server.add(report.meter.seconds, len(some))
        nodes = rehearsal.wrong(request, client.opened(report.revealed))
        wrong += [nodes] * len(some)
        integer += [program.chain.evaluate(image) for image in (request if request.ndim > 3 else [request])]
        answers += some
    assert report is not None
    facts = parties.seconds_setup, parties.bytes_keys, of_client, parties.throttle
    inference = LeveledInference(client, answers, *facts)
    peak = (peak_bytes(), report.peak) if parties.apart else None
    return LeveledEvaluation(program, np.stack(integer), wrong, inference, of_server.total, peak)


def leveled_answers(
    client: LeveledClient, server: Handler, images: Values, progress: StepProgress = no_progress
) -> Iterator[tuple[np.ndarray, list[Answer]]]:
    """Run one request after the other; a batch's cost is shared by its images.

    Args:
        images: integers as the data set has them, (N, C, H, W).
        progress: called after each request.

    Yields:
        what was encrypted, and the answer of each of its images.

    Raises:
        RuleError: an image does not fit the program, or the server refuses.
    """
    plan, pixels = client.description.plan, client.description.pixels(images)
    for start in range(0, len(images), plan.batch):
        request = pixels[start] if plan.lanes is None else pixels[start : start + plan.batch]
        count = 1 if plan.lanes is None else len(request)
        started, refused = time.perf_counter(), None
        traffic: list[Traffic] = []
        try:
            results, _ = run(client, server, request, traffic.append)
        except WrongResult as error:
            refused, results = error, error.values
        seconds = (time.perf_counter() - started) / count
        share = [Traffic(t.position, t.up // count, t.down // count, t.seconds / count) for t in traffic]
        progress(Step(start + count - 1, "answer", sum(t.up + t.down for t in traffic), start + count))
        rows = results.reshape(plan.batch, -1)[:count]
        yield request, [Answer(row, share, seconds, refused) for row in rows]
