"""Inferences that are prepared before their images: when, how many at a time, and what it took."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.session import ExchangeProgress, Handler, Traffic, prepare
from privcirnet.he.protocol.store import MaterialStore
from privcirnet.pipeline.links import over_links
from privcirnet.service.refusals import Lost


class Preparation(NamedTuple):
    """One inference that was prepared.

    Attributes:
        traffic: of each round.
        seconds: in all.
    """

    traffic: list[Traffic]
    seconds: float


@dataclass
class Ahead:
    """Prepares inferences whenever none is left.

    Args:
        count: to prepare at a time; 0: none.
        store: of the client's material.
        keep: whether what is left over at the end is of use; otherwise there are no more than there are images.
        again: makes a session that refused to prepare one that runs images.

    Attributes:
        done: what was prepared.
        stopped: why no more is prepared, in words; "" if nothing is known against it.
    """

    count: int
    store: MaterialStore
    keep: bool
    again: Callable[[], object]
    done: list[Preparation] = field(default_factory=list[Preparation])
    stopped: str = ""

    def before(
        self,
        client: Client,
        server: Handler,
        images: int,
        progress: ExchangeProgress = lambda exchange: None,
    ) -> None:
        """Prepare, if there is nothing left. Where that fails, images are run without.

        Args:
            client: the client.
            server: its session.
            images: that are still to come.
            progress: called after each round.

        Raises:
            Lost: the server is gone.
        """
        if self.store.serials() or self.stopped:
            return
        for _ in range(self.count if self.keep else min(self.count, images)):
            started = time.perf_counter()
            try:
                traffic = prepare(client, server, progress=progress)
            except Lost:
                raise
            except RuleError as error:
                self.stopped = str(error)
                self.again()
                return
            self.done.append(Preparation(traffic, time.perf_counter() - started))

    def summary(self) -> dict[str, Any] | None:
        """The key ``preparation`` of infer's summary.json; None if nothing was prepared."""
        if not self.done:
            return None
        size = sum(round.up + round.down for one in self.done for round in one.traffic) / len(self.done)
        seconds, rounds = sum(one.seconds for one in self.done) / len(self.done), len(self.done[-1].traffic)
        links = over_links(median(one.seconds for one in self.done), size, rounds)
        return {"seconds_per_image": seconds, "bytes_per_image": size, "rounds": rounds, "links": links}
