"""Inferences that are prepared before their images: the time, the batches, and the cost."""

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


def prepared_for(batches: Sequence[PreparedBatch]) -> int:
    """Return the number of images of some batches."""
    return sum(batch.count for batch in batches)


def summary(batches: Sequence[PreparedBatch]) -> Prepared | None:
    """Return the cost of an image's preparation; None if nothing was prepared."""
    if not batches:
        return None
    done, images = [round for batch in batches for round in batch.traffic], prepared_for(batches)
    seconds = typical([batch.seconds / batch.count for batch in batches])
    size, rounds = sum(round.up + round.down for round in done) / images, len(done) / images
    return Prepared(seconds, size, rounds, over_links(seconds, size, rounds))


@dataclass
class Ahead:
    """A stock of prepared inferences for images in sequence: filled in pauses, and whenever none is left.

    Attributes:
        count: number of inferences to keep prepared; 0: none.
        keep: whether inferences left over at the end are of use; otherwise there are no more than images.
        again: function that makes a session that refused to prepare one that runs images.
        pause_s: seconds between two images, without requests.
        more: number of images that will come after the present request.
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
        """The batches that were prepared."""
        return self._idle.done if self._idle else []

    @property
    def stopped(self) -> str:
        """The reason why no more is prepared, in words; "" if there is none."""
        return self._idle.stopped if self._idle else ""

    def before(self, client: Client, server: Handler, images: int, progress: ExchangeProgress) -> None:
        """Prepare in a pause, and if there is nothing left. Where that fails, an image is prepared when it comes.

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
