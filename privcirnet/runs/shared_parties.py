"""Both parties of a program in this process, started once for many calls."""

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from threading import Lock

from privcirnet.he.layers.integer import Values
from privcirnet.he.protocol.parties.session import Traffic, prepare
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.runs.evaluation import Evaluation, run
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import Parties, RunOptions
from privcirnet.runs.progress import Bar, silent


@dataclass
class Sent:
    """The messages of all calls so far.

    Attributes:
        images: number of images answered.
        bytes: bytes both ways, with keys and preparation.
        rounds: number of rounds, with those of preparation.
    """

    images: int = 0
    bytes: int = 0
    rounds: int = 0

    def add(self, traffic: Sequence[Traffic], images: int = 0) -> None:
        """Count rounds, and the images that they answered."""
        self.images += images
        self.bytes += sum(exchange.up + exchange.down for exchange in traffic)
        self.rounds += len(traffic)


class SharedParties:
    """Both parties of a program, started by the first call and shared by later ones, one call at a time.

    A call that fails ends them, and the next call begins others: nothing that was drawn is used twice. So does a call
    with other settings, and the first call in a copy of the process (fork). They also end with this object.

    Attributes:
        sent: messages of all calls of this process.
    """

    def __init__(self, mode: Interactive) -> None:
        self._mode, self.sent, self._lock = mode, Sent(), Lock()
        self._parties: Parties | None = None
        self._finish: weakref.finalize[..., SharedParties] | None = None
        _EVERY.add(self)

    @property
    def prepared(self) -> int:
        """The number of prepared inferences."""
        parties = self._parties
        return parties.client.prepared if parties else 0

    def evaluate(self, images: Values, how: RunOptions, check: bool) -> Evaluation:
        """Run both parties on images.

        Args:
            images: integer images, (N, C, H, W).
            check: whether every value of both parties is compared with the integer network's.

        Raises:
            RuleError: an image does not fit the program, or the program is refused.
        """
        self._mode.check(images)
        with self._begun(how) as parties:
            parties.server.watched = check
            evaluation = run(self._mode, parties if check else replace(parties, report=None), images)
            for answer in evaluation.answers:
                self.sent.add(answer.traffic, 1)
            return evaluation

    def prepare(self, count: int, how: RunOptions, bar: Bar) -> None:
        """Do all encrypted work for some images to come.

        Raises:
            RuleError: the program cannot be prepared.
        """
        with self._begun(how, bar) as parties, bar("Preparing inferences", count) as advance:
            batch_size, traffic = parties.client.together, list[Traffic]()
            groups = [min(batch_size, count - first) for first in range(0, count, batch_size)]
            rounds = sum(schedule_of(self._mode.program).rounds_ahead(some) for some in groups)

            def step(exchange: Traffic) -> None:
                traffic.append(exchange)
                advance(to=count * min(1.0, len(traffic) / rounds))

            prepare(parties.client, parties.server, count, step)
            advance(to=count)
            self.sent.add(traffic)

    def close(self) -> None:
        """End both parties after the call under way: secrets are zeroed, and memory is free. A call begins others."""
        with self._lock:
            self._end()

    @contextmanager
    def _begun(self, how: RunOptions, bar: Bar = silent) -> Iterator[Parties]:
        """Lock both parties for a ``with`` block; any error in it ends them."""
        with self._lock:
            try:
                if self._parties is None or self._parties.how != how:
                    self._end()
                    stack = ExitStack()
                    self._finish = weakref.finalize(self, stack.close)
                    parties = stack.enter_context(self._mode.open(how, bar))
                    self.sent.bytes += parties.bytes_keys
                    self._parties = parties
                yield self._parties
            except BaseException:
                self._end()
                raise

    def _end(self) -> None:
        self._parties = None
        if self._finish is not None:
            self._finish()

    def forget(self) -> None:
        """Begin anew in a copy of the process. Another thread of the parent may have been in the middle of an image.

        So nothing is waited for: the copy's secret key is zeroed, and everything else is left.
        """
        parties, self._parties = self._parties, None
        self.sent, self._lock = Sent(), Lock()
        if self._finish is not None:
            self._finish.detach()
        if parties is not None:
            parties.client.close()


_EVERY = weakref.WeakSet[SharedParties]()


def _forget_every() -> None:
    for parties in _EVERY:
        parties.forget()


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=_forget_every)
