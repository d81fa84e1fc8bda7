"""``infer.py images=DIR``: every picture of a folder or a store, one row of results each, and the totals."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from privcirnet.artifact import InputSpec, read_checkpoint, write_json
from privcirnet.artifact.results import PictureResult, Results
from privcirnet.cli.console import counting, show, show_text
from privcirnet.config import InferConfig
from privcirnet.data import load_for
from privcirnet.data.pictures import Listing, Pictures, read_ahead
from privcirnet.errors import RuleError, listed
from privcirnet.runs.answers import InferenceStep
from privcirnet.runs.parties import Parties
from privcirnet.runs.pictures import Reading, Tally, check_data, classify, ends_of, preparation_for
from privcirnet.train.stages import CHECKPOINT

_SHOWN = 10
Ready = Callable[[], AbstractContextManager[tuple[Parties, str]]]
"""Function that opens both parties, or a client alone, with the version of their program."""


def classify_pictures(config: InferConfig, source: str, ready: Ready) -> None:
    """Classify the pictures of ``source`` that are not in the results yet."""
    pictures = Pictures(source)
    path = Path(config.results or Path(config.out) / "results.jsonl")
    with closing(Results(path, pictures.source)) as results:
        listing = Listing(pictures, results.rows)
        if results.rows:
            show_text(f"{len(results.rows)} pictures are in {path} already: they are not asked for again")
        inputs = _inputs(config)
        with ready() as (parties, version):
            results.check_version(version)
            run = _Run(config, path, listing, Tally.of(results.rows.values()))
            try:
                for row in run.rows(parties, version, pictures, inputs):
                    results.add(row)
                results.complete()
            finally:
                run.conclude(version)


@dataclass
class _Run:
    """The pictures of one run.

    Attributes:
        before: totals of the earlier results.
    """

    config: InferConfig
    path: Path
    listing: Listing
    before: Tally
    now: Tally = field(default_factory=Tally)
    started: float = field(default_factory=time.monotonic)

    def rows(
        self, parties: Parties, version: str, pictures: Pictures, inputs: InputSpec | None
    ) -> Iterator[PictureResult]:
        """Yield a row for each picture, and show the progress."""
        description, data = parties.client.known, self.config.data.name
        ends = ends_of(description, inputs.levels if inputs else 0)
        classes = inputs.classes if inputs else ()
        check_data(ends, inputs.shape if inputs else None, classes, data)
        reading = Reading.of(description, version, classes, self.config.top_k)
        with (
            closing(read_ahead(pictures, self.listing, preparation_for(ends, data))) as coming,
            counting("Classifying pictures") as advance,
        ):

            def step(done: InferenceStep) -> None:
                advance(self._done + done.images, self.listing.count, f"{self._rate:.2f} images/s, {done.name}")

            for row in classify(parties, coming, reading, lambda: self.listing.count - self._done, step):
                yield row
                self.now.add(row)
                advance(self._done, self.listing.count, f"{self._rate:.2f} images/s, {self._refused} without a class")

    @property
    def _done(self) -> int:
        return self.listing.known + self.now.rows

    @property
    def _refused(self) -> int:
        return self.before.refused + self.now.refused

    @property
    def _rate(self) -> float:
        """The requested images per second of the whole run."""
        return self.now.asked / max(time.monotonic() - self.started, 1e-9)

    def conclude(self, version: str) -> None:
        """Write and show the summary of the whole results, and of this run's part."""
        now, all_, seconds = self.now, self.before + self.now, time.monotonic() - self.started
        figures = {
            "stage": "pictures",
            "images": self.config.images,
            "results": str(self.path),
            "version": version,
            "engine": self.config.engine,
            "rows": all_.rows,
            "classes": dict(all_.classes.most_common()),
            "refused": all_.refused,
            "asked": now.asked,
            "prepared": now.prepared,
            "bytes": now.bytes,
            "seconds": seconds,
            "seconds_of_images": now.seconds,
            "images_per_second": now.asked / max(seconds, 1e-9),
            "config": asdict(self.config),
        }
        path = Path(self.config.out) / "summary.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, figures)
        counts = [f"{count} {name}" for name, count in all_.classes.most_common()]
        hidden = ", NOTHING WAS ENCRYPTED" if self.config.rehearsal else ""
        place = f"server {self.config.server}" if self.config.server else f"engine {self.config.engine}"
        show(
            f"pictures: {all_.rows} rows, {place}{hidden}",
            {
                "images": self.config.images,
                "classes": listed(counts, _SHOWN) or "none",
                "refused": f"{all_.refused} without a class; each row says why",
                "this run": f"{now.asked} images in {seconds:.1f} s, {figures['images_per_second']:.2f} a second; "
                f"{now.prepared} prepared, {now.bytes / 1e6:.1f} MB",
                "results": self.path,
                "saved": path,
            },
        )


def _inputs(config: InferConfig) -> InputSpec | None:
    """Return the input format of a program, from its network if that is here, else from its data set."""
    if config.reference and (path := Path(config.reference) / CHECKPOINT).is_file():
        inputs = read_checkpoint(path).inputs
        if inputs is not None and inputs.data == config.data.name:
            return inputs
    try:
        with counting("Decoding images") as progress:
            data = load_for(config.data, progress)
    except RuleError as error:
        show_text(f"Classes are numbers: {error}")
        return None
    shape = data.held_out(1)[0].shape
    return InputSpec((shape[1], shape[2], shape[3]), data.log_step, data.levels, tuple(data.classes), config.data.name)
