"""The measurements of one party, node by node."""

import time
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Meter:
    """Seconds and operations of one party.

    Attributes:
        seconds: node -> seconds of work.
        counts: node -> operations by name (server only).
    """

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @contextmanager
    def time(self, *nodes: str) -> Generator[None, None, None]:
        """Add the time of the block to a node, or in equal parts to several.

        Yields:
            nothing, once. A block that raises is not counted.
        """
        start = time.perf_counter()
        yield
        seconds = (time.perf_counter() - start) / len(nodes)
        for node in nodes:
            self.seconds[node] += seconds

    @contextmanager
    def count(self, node: str, counter: Counter[str]) -> Generator[None, None, None]:
        """Add the operations that the block adds to an engine's counter to a node.

        Yields:
            nothing, once. A block that raises is not counted.
        """
        before = counter.copy()
        yield
        self.counts[node] += counter - before
