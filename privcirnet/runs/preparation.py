"""Inferences that are prepared before their images: when, how many at a time, and what it took."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from privcirnet.artifact.summaries import PreparationSummary as Prepared
from privcirnet.he.protocol.offline.store import PreparedStore
from privcirnet.he.protocol.parties.background_preparation import PATIENCE_S, BackgroundPreparation, PreparedBatch
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.session import ExchangeProgress, Handler, Traffic
from privcirnet.runs.links import over_links
from privcirnet.runs.timings import typical


def prepared_for(each: Sequence[PreparedBatch]) -> int:
    """Return for how many images."""
    return sum(one.count for one in each)


def summary(each: Sequence[PreparedBatch]) -> Prepared | None:
    """Return what an image's preparation took; None if nothing was prepared."""
    if not each:
        return None
    done, images = [round for one in each for round in one.traffic], prepared_for(each)
    seconds = typical([one.seconds / one.count for one in each])
    size, rounds = sum(round.up + round.down for round in done) / images, len(done) / images
    return Prepared(seconds, size, rounds, over_links(seconds, size, rounds))


@dataclass
class Ahead:
    """Prepares inferences for images of which one comes after the other: in pauses, and whenever none is left.

    Attributes:
        count: to keep prepared; 0: none.
        keep: whether what is left over at the end is of use; otherwise there are no more than there are images.
        again: makes a session that refused to prepare one that runs images.
        pause_s: seconds between two images, in which nothing is asked for.
        more: images that will come after those that are asked for now.
    """

    count: int
    store: PreparedStore
    keep: bool
    again: Callable[[], object]
    pause_s: float = 0.0
    more: int = 0
    _idle: BackgroundPreparation | None = field(default=None)
    _progress: ExchangeProgress = field(default=lambda exchange: None)

    @property
    def done(self) -> list[PreparedBatch]:
        """What was prepared, as many at once as each says."""
        return self._idle.done if self._idle else []

    @property
    def stopped(self) -> str:
        """Why no more is prepared, in words; "" if nothing is known against it."""
        return self._idle.stopped if self._idle else ""

    def before(self, client: Client, server: Handler, images: int, progress: ExchangeProgress) -> None:
        """Prepare, in a pause and if there is nothing left. Where that fails, an image is prepared when it comes.

        Raises:
            Lost: the server is gone.
        """
        if not self.count:
            return
        first, self._progress = self._idle is None, progress
        if self._idle is None:
            wait, tell = PATIENCE_S if self.pause_s else math.inf, self._tell
            self._idle = BackgroundPreparation(client, server, self.count, self.again, patience_s=wait, progress=tell)
        self._idle.count = self.count if self.keep else min(self.count, images + self.more)
        if self.pause_s and not first:
            self._idle.rest(self.pause_s)
        if not self.store.serials():
            self._idle.fill()

    def _tell(self, exchange: Traffic) -> None:
        self._progress(exchange)
