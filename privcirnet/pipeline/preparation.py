"""Inferences that are prepared before their images: when, how many at a time, and what it took."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.session import Handler, Traffic, prepare
from privcirnet.he.protocol.store import MaterialStore
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

    def before(self, client: Client, server: Handler, images: int) -> None:
        """Prepare, if there is nothing left. Where that fails, images are run without.

        Args:
            client: the client.
            server: its session.
            images: that are still to come.

        Raises:
            Lost: the server is gone.
        """
        if self.store.serials() or self.stopped:
            return
        for _ in range(self.count if self.keep else min(self.count, images)):
            started = time.perf_counter()
            try:
                traffic = prepare(client, server)
            except Lost:
                raise
            except RuleError as error:
                self.stopped = str(error)
                self.again()
                return
            self.done.append(Preparation(traffic, time.perf_counter() - started))

    def summary(self) -> dict[str, float] | None:
        """The key ``preparation`` of infer's summary.json; None if nothing was prepared."""
        if not self.done:
            return None
        size = sum(round.up + round.down for one in self.done for round in one.traffic)
        seconds = sum(one.seconds for one in self.done)
        return {"seconds_per_image": seconds / len(self.done), "bytes_per_image": size / len(self.done)}
