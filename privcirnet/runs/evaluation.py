"""Encrypted inference of many images in any mode: everything is checked and measured.

The modes differ in a :class:`Mode`; :mod:`.interactive` and :mod:`.ckks` have one each. Seconds are those of a typical
image: the median, without the first image, for which kernels are compiled or loaded. Over networks those of bytes and
round trips come on top.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

import numpy as np

from privcirnet.artifact import summaries
from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.protocol.interface import Meter
from privcirnet.he.protocol.parties.background_preparation import PreparedBatch
from privcirnet.he.protocol.parties.session import Traffic
from privcirnet.he.system.process import peak_bytes
from privcirnet.runs.answers import Answer, StepProgress, no_progress
from privcirnet.runs.parties import Parties, RunOptions, ServerTask
from privcirnet.runs.progress import ProgressBar, silent


def over_links(compute: float, size: float, rounds: float) -> dict[str, summaries.LinkPrediction]:
    """Return seconds over every link of :data:`LINKS` but "local".

    Args:
        compute: seconds measured where both parties are on one machine.
        size: bytes both ways.

    >>> over_links(1.0, 9e6, 10)["wan"].seconds
    2.8
    """
    predictions = dict[str, summaries.LinkPrediction]()
    for name, link in LINKS.items():
        if name != "local":
            parts = compute, size / link.bandwidth, rounds * link.round_trip
            predictions[name] = summaries.LinkPrediction(*parts, seconds=sum(parts))
    return predictions


def never() -> bool:
    """Return False: all images are to be evaluated."""
    return False


def typical(seconds: Sequence[float]) -> float:
    """Return the typical one of several times: the median of all but the first, which warms up.

    Args:
        seconds: times in order; a single one is the result. None take 0.

    >>> typical([4.5, 0.04, 0.05, 0.06])
    0.05
    """
    return median(seconds[1:] or seconds or [0.0])


@dataclass
class ImageTimings:
    """The seconds of each image, from totals that only grow.

    Attributes:
        each: seconds by node, for each image, or each group that was worked on together.
    """

    each: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    _before: Mapping[str, float] = field(default_factory=dict[str, float])

    def add(self, seconds: Mapping[str, float], images: int = 1) -> None:
        """Note the seconds added since the last time.

        Args:
            images: number of images worked on since; for none, the added seconds count for the next.
        """
        if images:
            self.each.append({name: (all_ - self._before.get(name, 0.0)) / images for name, all_ in seconds.items()})
            self._before = dict(seconds)

    def of(self, name: str) -> float:
        """Return the seconds of a node for a typical image."""
        return typical([lap.get(name, 0.0) for lap in self.each])

    @property
    def total(self) -> float:
        """Return the seconds of all nodes for a typical image."""
        return typical([sum(lap.values()) for lap in self.each])


@dataclass
class PartyLaps:
    """A party's seconds for each image, and for its preparation."""

    images: ImageTimings = field(default_factory=ImageTimings)
    ahead: ImageTimings = field(default_factory=ImageTimings)
    _prepared: int = 0

    def add(self, meters: Sequence[Meter], images: int = 1, prepared: int = 0) -> None:
        """Note the seconds of a request; ``meters``: meters of all images, and of all offline work, if any."""
        of_images, *ahead = meters
        self.images.add(of_images.seconds, images)
        for meter in ahead:
            self.ahead.add(meter.seconds, prepared - self._prepared)
        self._prepared = prepared

    def of(self, name: str) -> float:
        """Return the seconds of a node for a typical image, with its preparation."""
        return self.images.of(name) + self.ahead.of(name)


def prepared_for(batches: Sequence[PreparedBatch]) -> int:
    """Return the number of images of some batches."""
    return sum(batch.count for batch in batches)


def image_cost(seconds: float, traffic: Sequence[Traffic], throttle: str = "", images: int = 1) -> summaries.ImageCost:
    """Return the cost of an image.

    Args:
        traffic: rounds of all images.
        throttle: link that messages were held up by; "" for none.
    """
    up, down = round(sum(t.up for t in traffic) / images), round(sum(t.down for t in traffic) / images)
    rounds = len(traffic) / images
    return summaries.ImageCost(seconds, up, down, rounds, {} if throttle else over_links(seconds, up + down, rounds))


class Mode(Protocol):
    """A mode of encrypted inference, with its program."""

    @property
    def step(self) -> float:
        """The step of results: real logit = result x step."""
        ...

    def check(self, images: Sequence[Values] | Values) -> None:
        """Raise unless images, integers (N, C, H, W) of the data set, fit the program."""
        ...

    def open(self, how: RunOptions, bar: ProgressBar) -> AbstractContextManager[Parties]:
        """Return both parties, which end with the block.

        Raises:
            RuleError: the program is refused.
        """
        ...

    def task(self, how: RunOptions) -> ServerTask:
        """Return a server's task.

        Raises:
            RuleError: the settings are not for such a program.
        """
        ...

    def clear(self, image: np.ndarray) -> np.ndarray:
        """Return the results of an encrypted image in clear, (classes,)."""
        ...

    def wrong(self, client: Any, request: np.ndarray, answers: Sequence[Answer], seen: Any) -> list[list[str]]:
        """Return the names of the values that differ from those in clear, for each image of a request."""
        ...

    def audit(self, of: "Evaluation", compared: Mapping[str, Any]) -> summaries.AuditSummary:
        """Return the audit.

        Args:
            compared: fields of every mode's audit.
        """
        ...

    def layers(self, of: "Evaluation") -> list[summaries.LayerRow]:
        """Return the cost of each layer."""
        ...


@dataclass(frozen=True)
class Audit:
    """The facts that only a harness with both parties has.

    Attributes:
        clear: results in clear, (N, classes).
        wrong: names of the values of each image that differ from those in clear; empty if all agree.
        laps: the server's seconds for each image.
        meters: the server's meters, of all images, and of all offline work, if there is any.
        peak: peak memory of the server's process, bytes.
    """

    clear: np.ndarray
    wrong: list[list[str]]
    laps: PartyLaps
    meters: Sequence[Meter]
    peak: int


@dataclass(frozen=True)
class Evaluation:
    """The results and costs of an evaluation.

    Attributes:
        answers: the result of each image.
        laps: the client's seconds for each image.
        audit: audit; None for a client alone, which sees one party only.
    """

    mode: Mode
    parties: Parties
    answers: Sequence[Answer]
    laps: PartyLaps
    audit: Audit | None = None

    @property
    def logits(self) -> np.ndarray:
        """The decrypted results in units of the mode's step, (N, classes)."""
        return np.stack([answer.logits for answer in self.answers])

    @property
    def audited(self) -> Audit:
        """The audit, where there is one."""
        assert self.audit is not None
        return self.audit

    @property
    def refused(self) -> list[int]:
        """The indices of the images whose result the client refused."""
        return [index for index, answer in enumerate(self.answers) if answer.refused]

    @property
    def classes(self) -> Values:
        """The predicted class of each image, (N,); -1 where the result was refused."""
        classes = self.logits.argmax(axis=1)
        classes[self.refused] = -1
        return classes

    @property
    def preparations(self) -> list[PreparedBatch]:
        """The batches prepared before images came, and then for images that waited for them."""
        ahead = self.parties.ahead.done if self.parties.ahead else []
        return [*ahead, *(answer.preparation for answer in self.answers if answer.preparation)]

    @property
    def wrong(self) -> list[list[str]]:
        """The names of the values of each image that differ from those in clear."""
        return self.audited.wrong

    def summary(self, reference: Values | None, labels: Values) -> summaries.InferenceSummary:
        """Return the figures of the run.

        Args:
            reference: class predicted by the float network, (N,); None if there is none.
            labels: true classes, (N,).
        """
        of, seconds = self.parties, [answer.seconds for answer in self.answers]
        return summaries.InferenceSummary(
            engine=of.how.engine,
            images=len(labels),
            top1_float=None if reference is None else percent(reference == labels),
            top1_encrypted=percent(self.classes == labels),
            cost=image_cost(typical(seconds), self.answers[-1].traffic, of.how.throttle),
            seconds_images=seconds,
            seconds_setup=of.seconds_setup,
            seconds_warm_up=of.seconds_warm_up,
            seconds_client=self.laps.images.total,
            throttle=of.how.throttle or None,
            bytes_keys=of.bytes_keys,
            memory=self._memory(),
            phases=self._phases(),
            audit=self.mode.audit(self, self._compared(self.audit, labels)) if self.audit else None,
            refused=self.refused,
            layers=self.mode.layers(self),
            predictions=self._predictions(reference, labels),
        )

    def _phases(self) -> summaries.Phases | None:
        """Return the phases of images; None if they have one only."""
        online = [answer.online for answer in self.answers if answer.online]
        if not online:
            return None
        batches, ahead, throttle = self.preparations, self.parties.ahead, self.parties.how.throttle
        done = [exchange for batch in batches for exchange in batch.traffic]
        before = typical([batch.seconds / batch.count for batch in batches])
        return summaries.Phases(
            prepared=sum(answer.prepared for answer in self.answers),
            dropped=[*self.parties.client.dropped, *([ahead.stopped] if ahead and ahead.stopped else [])],
            online=image_cost(typical([seconds for _, seconds in online]), online[-1][0], throttle),
            offline=image_cost(before, done, throttle, prepared_for(batches)) if batches else None,
        )

    def _compared(self, audit: Audit, labels: Values) -> dict[str, Any]:
        """Return the comparison of the results with those in clear."""
        step, clear = self.mode.step, audit.clear.argmax(axis=1)
        with np.errstate(invalid="ignore"):  # of images beyond the bounds
            difference = float(step * np.abs(audit.clear - self.logits).max())
        return {
            "processes": 2 if self.parties.how.apart else 1,
            "top1_clear": percent(clear == labels),
            "argmax_equal": int((clear == self.classes).sum()),
            "logit_max_difference": difference,
            "logit_range": float(step * np.abs(audit.clear).max()),
            "seconds_server": audit.laps.images.total,
        }

    def _memory(self) -> dict[str, int]:
        if self.audit is None:
            return {"client": peak_bytes()}
        return {"client": peak_bytes(), "server": self.audit.peak} if self.parties.how.apart else {"both": peak_bytes()}

    def _predictions(self, reference: Values | None, labels: Values) -> list[summaries.Prediction]:
        columns: dict[str, Any] = {"label": labels, "float": reference, "encrypted": self.classes}
        columns["logits"] = self.logits.astype(np.float64) * self.mode.step
        if self.audit:
            clear = self.audit.clear
            columns |= {"clear": clear.argmax(axis=1), "logits_clear": clear.astype(np.float64) * self.mode.step}
        present = {name: values.tolist() for name, values in columns.items() if values is not None}
        rows = enumerate(zip(*present.values(), strict=True))
        return [summaries.Prediction(index=index, **dict(zip(present, row, strict=True))) for index, row in rows]


def evaluate(
    mode: Mode,
    images: Sequence[Values] | Values,
    how: RunOptions | None = None,
    progress: StepProgress = no_progress,
    bar: ProgressBar = silent,
    ends: Callable[[], bool] = never,
) -> Evaluation:
    """Return the evaluation of both parties on every image, with every step checked.

    Args:
        images: integers of the data set, (N, C, H, W).
        how: options; None: the compiled engine, in this process.
        progress: function called after each round, and each layer of CKKS.
        ends: function asked after each request: whether no more images are to follow.

    Raises:
        RuleError: there is no image, or one that does not fit the program; the program is refused or cannot run, or
            the server's process ended.
    """
    check_some(images)
    mode.check(images)
    with mode.open(how or RunOptions(), bar) as parties:
        return run(mode, parties, images, progress, ends)


def run(
    mode: Mode,
    parties: Parties,
    images: Sequence[Values] | Values,
    progress: StepProgress = no_progress,
    ends: Callable[[], bool] = never,
) -> Evaluation:
    """Return the evaluation of parties on every image; where both are here, every step is checked.

    Args:
        images: integers of the data set, (N, C, H, W).
        ends: function asked after each request: whether no more images are to follow.

    Raises:
        RuleError: an image does not fit the program, or the server refuses or is gone.
    """
    check_some(images)
    clear, wrong, answers = list[np.ndarray](), list[list[str]](), list[Answer]()
    of_client, of_server, report = PartyLaps(), PartyLaps(), None
    for request, some in parties.requests(images, progress):
        answers += some
        prepared = prepared_for(Evaluation(mode, parties, answers, of_client).preparations)
        of_client.add(parties.meters, len(some), prepared)
        if parties.report:
            report = parties.report()
            of_server.add(report.meters, len(some), prepared)
            wrong += mode.wrong(parties.client, request, some, report.seen)
            clear += [mode.clear(image) for image in (request if request.ndim > 3 else request[None])]
        if ends():
            break
    audit = Audit(np.stack(clear), wrong, of_server, report.meters, report.peak) if report else None
    return Evaluation(mode, parties, answers, of_client, audit)


def check_some(images: Sequence[Values] | Values) -> None:
    """Raise unless there is an image."""
    if not len(images):
        raise RuleError("there must be an image to evaluate", got=0, remedy="give one or more")


def percent(right: Values) -> float:
    """Return the share of true entries in percent; ``right``: booleans, (N,)."""
    return 100.0 * float(np.mean(right))


def integer_audit(of: Evaluation, compared: Mapping[str, Any], unit: str | None = None) -> summaries.IntegerAudit:
    """Return an audit in which every value has its integer, up to ``unit``."""
    names, equal = sorted({name for nodes in of.wrong for name in nodes}), sum(not nodes for nodes in of.wrong)
    return summaries.IntegerAudit(logits_equal=equal, unit=unit, wrong_nodes=names, **compared)
