"""Classify held-out images encrypted and check every step, or pictures of a folder. `privcirnet infer --help`."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from privcirnet.artifact.program import read_inputs
from privcirnet.artifact.records import InputSpec, read_checkpoint, write_arrays, write_json
from privcirnet.artifact.results import PictureResult, Results
from privcirnet.artifact.run import check_replaced
from privcirnet.artifact.summaries import AuditSummary, ImageCost, InferenceSummary, Prediction, plain
from privcirnet.cli.console import (
    counting,
    fail,
    first_interrupt,
    inference_bar,
    interrupted,
    progress_bar,
    show,
    show_rows,
    show_text,
)
from privcirnet.cli.settings import script
from privcirnet.config import InferConfig
from privcirnet.data import load_for
from privcirnet.data.arrays import Arrays, is_array
from privcirnet.data.dataset import ImageData
from privcirnet.data.picture import PreparesInputs
from privcirnet.data.pictures import Listing, Pictures, read_ahead
from privcirnet.errors import RuleError, listed
from privcirnet.he.program.signature import pinned
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.protocol.one_message.session import OneMessageClient
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.system import threads
from privcirnet.runs.answers import InferenceStep
from privcirnet.runs.arrays import ArrayPreparation
from privcirnet.runs.compiled import client_of, infer, read_mode
from privcirnet.runs.evaluation import Evaluation, Mode, evaluate
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.memory import check_memory
from privcirnet.runs.parties import Parties, RunOptions, start_server, warm_up
from privcirnet.runs.pictures import (
    Reading,
    Tally,
    check_data,
    classify,
    ends_of,
    inputs_of,
    preparation_for,
)
from privcirnet.service.access import ClientAccess
from privcirnet.service.address import parse_address
from privcirnet.service.client import Retries, ServiceClient
from privcirnet.service.programs import version_of
from privcirnet.train import stages
from privcirnet.train.accuracy import predict
from privcirnet.train.stages import CHECKPOINT

_SHOWN, _REASONS = 10, 3
_TESTS = 12
"""Number of test images that the page offers."""


@script(InferConfig)
def main(config: InferConfig) -> None:
    """Compare float, integer and encrypted predictions of held-out images."""
    if config.ui:
        _page(config)
        return
    if isinstance(config.images, str):
        threads.use(config.threads)
        classify_pictures(config, config.images, partial(_alone if config.server else _both, config))
        return
    check_replaced(asdict(config))
    with counting("Decoding images") as progress:
        data = load_for(config.data, progress)
    images, labels = data.held_out(config.images)
    if len(labels) < config.images:
        show_text(f"{len(labels)} images: the test set has no more")
    threads.use(config.threads)
    figures = (_ask if config.server else _audit)(config, data, images, labels.numpy())
    summary = {"stage": "client" if config.server else "infer", **plain(figures), "config": asdict(config)}
    if figures.images < len(images):
        write_json(path := Path(config.out) / "interrupted.json", summary)
        interrupted(f"{path} has the first {figures.images} of {len(images)} images")
    out, pictures = Path(config.out), images.permute(0, 2, 3, 1).numpy() * (255 // data.levels)
    write_arrays(out / "images.npz", images=pictures[..., 0] if pictures.shape[-1] == 1 else pictures)
    write_json(out / "summary.json", summary)
    _show(config, figures, data)
    if figures.images and len(figures.refused) == figures.images:
        fail(f"no result can be used: all {figures.images} were refused as wrong")


@contextmanager
def _both(config: InferConfig) -> Generator[tuple[Parties, str]]:
    """Yield both parties, unchecked, and their program's version."""
    mode = _mode(config)
    if isinstance(mode, Interactive):
        check_memory(mode.program, config.weights_gb, config.engine)
    with mode.open(replace(_how(config), audited=False), progress_bar) as parties:
        yield parties, version_of(Path(config.program))


@contextmanager
def _alone(config: InferConfig) -> Generator[tuple[Parties, str]]:
    """Yield the client of a server elsewhere, and its program's version."""
    keep = bool(config.prepared_folder)
    with closing(_prepared_work(config)) as prepared_work, _asked(config, prepared_work) as remote:
        yield client_of(remote, _how(config), keep), remote.version


def _how(config: InferConfig) -> RunOptions:
    return RunOptions(
        config.engine,
        config.weights_gb,
        config.weights_folder,
        config.keys_gb,
        config.processes == 2,
        config.prepare,
        config.pause_s,
        config.throttle,
        warm=config.warm_up,
    )


def _audit(config: InferConfig, data: ImageData, images: Tensor, labels: np.ndarray) -> InferenceSummary:
    """Run both parties here and check every step."""
    mode = _mode(config)
    if isinstance(mode, Interactive):
        check_memory(mode.program, config.weights_gb, config.engine)
    reference = _predicted(config, data, images)
    integers = images.numpy().astype(np.int64)
    with inference_bar(len(labels)) as progress, first_interrupt() as ends:
        evaluation = evaluate(mode, integers, _how(config), progress, progress_bar, ends)
    return _summary(evaluation, data, reference, labels)


def _mode(config: InferConfig) -> Mode:
    return read_mode(Path(config.program), config.mode, pinned(config.model_key))


def _ask(config: InferConfig, data: ImageData, images: Tensor, labels: np.ndarray) -> InferenceSummary:
    """Run the client alone, without program folder and weights."""
    reference = _predicted(config, data, images) if config.reference else None
    keep, integers = bool(config.prepared_folder), images.numpy().astype(np.int64)
    prepared_work = _prepared_work(config)
    with (
        closing(prepared_work),
        _asked(config, prepared_work) as remote,
        inference_bar(len(labels)) as progress,
        first_interrupt() as ends,
    ):
        evaluation = infer(remote, integers, _how(config), progress, keep=keep, ends=ends)
        return replace(_summary(evaluation, data, reference, labels), server=config.server)


def _summary(of: Evaluation, data: ImageData, reference: np.ndarray | None, labels: np.ndarray) -> InferenceSummary:
    """Return the figures of the images that were answered, the first ones."""
    count = len(of.answers)
    expected = None if reference is None else reference[:count]
    return replace(of.summary(expected, labels[:count]), classes=list(data.classes))


def _page(config: InferConfig) -> None:
    """Serve the client's page on loopback until it is interrupted."""
    from privcirnet.page.content import Content, TestImages
    from privcirnet.page.server import serve

    threads.use(config.threads)
    inputs, tests, notes = _stated_inputs(config), None, ()
    try:
        with counting("Decoding images") as progress:
            data = load_for(config.data, progress)
    except RuleError as error:
        notes = (f"No test images: {error}",)
    else:
        images, labels = data.held_out(_TESTS)
        if inputs is None or inputs_of(data, inputs.data) == inputs:
            inputs, tests = inputs_of(data, config.data.name), TestImages(images.numpy(), labels.tolist())
        else:
            notes = (f"No test images: the program was not made for data={config.data.name}",)
    place = f"server {config.server}" if config.server else "its server is another process of this machine"
    form = inputs or _unknown(config)
    content = Content(form.data, place, not config.rehearsal, form.classes, tests, notes, form.levels, form.low)
    with closing(_prepared_work(config)) as prepared_work:
        connect, announce = (
            partial(_connected, config, prepared_work),
            partial(_show_address, config, form.data or "pictures", place),
        )
        serve(connect, content, 0 if config.ui is True else config.ui, announce, config.prepare)


def _prepared_work(config: InferConfig) -> PreparedWork:
    """Return the store of prepared work for the client of a server elsewhere."""
    folder, claims = config.prepared_folder, config.prepared_claims
    return PreparedWork(Path(folder) if folder else None, note=show_text, claims=Path(claims) if claims else None)


def _asked(config: InferConfig, prepared_work: PreparedWork | None = None) -> ServiceClient:
    """Connect to the server of the settings."""
    access, key = ClientAccess.of(Path(config.tls) if config.tls else None), pinned(config.model_key)
    address = parse_address(config.server)
    party, named = OneMessageClient if config.mode == "ckks" else Client, (config.timeout_s, access, config.served, key)
    retries = Retries(config.retries, show_text)
    return ServiceClient(address, config.engine, *named, prepared_work=prepared_work, party=party, retries=retries)


@contextmanager
def _connected(config: InferConfig, prepared_work: PreparedWork) -> Generator[ServiceClient]:
    """Connect to the server of the settings, or to one in another process.

    Work prepared with the former outlives a connection; the latter ends with it.
    """
    if config.server:
        with _asked(config, prepared_work) as remote:
            yield remote
        return
    task = _mode(config).task(RunOptions(config.engine, config.weights_gb, config.weights_folder, audited=False))
    with (
        start_server(task) as process,
        ServiceClient(process.address, config.engine, config.timeout_s, party=task.party) as remote,
    ):
        if config.warm_up:
            with progress_bar("Warming up", 0):
                warm_up(remote.party, remote)
        yield remote


def _show_address(config: InferConfig, name: str, place: str, address: str) -> None:
    hidden = ", NOTHING IS ENCRYPTED" if config.rehearsal else ""
    facts = {"open": address, "keep": "it to yourself: whoever has it can use the page; Ctrl-C ends it"}
    show(f"infer: a page for {name}, {place}{hidden}", facts)


def _predicted(config: InferConfig, data: ImageData, images: Tensor) -> np.ndarray:
    return predict(stages.load_network(config.reference, data), data, images).argmax(dim=1).numpy()


def _took(summary: InferenceSummary, both: str) -> dict[str, str]:
    """Return the time of images, and of the setup before them."""
    first, *later = summary.seconds_images
    rest = f", {np.median(later):.3f} s the others (median)" if later else ""
    warm = "" if summary.seconds_warm_up is None else f", {summary.seconds_warm_up:.1f} s to warm up"
    return {"time": f"{first:.3f} s the first image{rest}{both}; {summary.seconds_setup:.1f} s to set up{warm}"}


def _phases(summary: InferenceSummary) -> dict[str, str]:
    """Return the costs of the offline and the online phase."""
    facts = dict[str, str]()
    if (phases := summary.phases) is None:
        return facts
    if phases.offline:
        when = "" if phases.prepared else " (made after the image had come; prepare=8 makes it before)"
        facts["offline"] = f"{_cost(phases.offline)}, its preparation{when}; {_over(phases.offline)}"
    facts["online"] = f"{_cost(phases.online)}; {_over(phases.online)}"
    facts["prepared"] = f"{phases.prepared} of {summary.images} images, before they came"
    if phases.dropped:
        facts["unprepared"] = "; ".join(phases.dropped[-_REASONS:])
    return facts


def _cost(of: ImageCost) -> str:
    return f"{of.seconds:.3f} s, {of.bytes / 1e6:.2f} MB and {of.rounds:.3g} rounds an image"


def _agreement(audit: AuditSummary, memory: Mapping[str, int]) -> dict[str, str]:
    """Return the precision of results against those in clear, and the cost of a circuit."""
    if audit.mode == "integer":
        equal = f"{audit.logits_equal} images follow the integer network {audit.in_words}"
        return {"equal": f"{equal}; {audit.argmax_equal} with the same class"}
    beyond, circuit = f"; {audit.beyond} are beyond the bounds, not to be used" if audit.beyond else "", audit.circuit
    sizes = circuit.bytes_keys_server, circuit.bytes_weights, sum(memory.values())
    keys, weights, peak = (size / 1e9 for size in sizes)
    return {
        "equal": f"logits right to {audit.logits_bits:.1f} bits of the largest one, in the worst of all images; "
        f"{audit.argmax_equal} with the same class as in clear{beyond}",
        "circuit": f"{circuit.bootstrappings} bootstrappings, {circuit.levels} levels, {circuit.operations['rotate']} "
        f"rotations; {sum(circuit.processor_seconds_predicted.values()):.0f} processor seconds predicted",
        "memory": f"{keys:.2f} GB of keys, {weights:.2f} GB of encoded weights, {peak:.2f} GB at most in all",
    }


def _over(cost: ImageCost) -> str:
    text = ", ".join(f"{name} {over.seconds:.2f} s" for name, over in cost.links.items())
    return f"{text}, predicted" if text else "messages were held up as on a link"


def _strange(config: InferConfig, predictions: Sequence[Prediction]) -> dict[str, str]:
    """Return a doubt about the reference: rounding to integers leaves most classes as they are."""
    both = [(p.float, p.clear) for p in predictions if None not in (p.float, p.clear)]
    agree = sum(float_ == clear for float_, clear in both)
    if 2 * agree >= len(both):
        return {}
    same = f"{agree} of {len(both)} images have the same class in it as in clear"
    return {"reference": f"{same}: is {config.reference} what was exported?"}


def _show(config: InferConfig, summary: InferenceSummary, data: ImageData) -> None:
    """Show the result in a few lines; for a client alone also the first images' classes."""
    if config.server:
        classes = [*data.classes, "refused"]  # which -1 stands for
        label_rows = [
            {"label": p.label, "float": p.float, "encrypted": p.encrypted} for p in summary.predictions[:_SHOWN]
        ]
        rows = [{name: classes[c] for name, c in row.items() if c is not None} for row in label_rows]
        show_rows(f"infer: the first {len(rows)} images", rows)
    audit = summary.audit
    clear = {"integer" if audit.mode == "integer" else "clear": audit.top1_clear} if audit else {}
    top1 = {"float": summary.top1_float, **clear, summary.done: summary.top1_encrypted}
    facts = {"top-1": ", ".join(f"{name} {value:.2f} %" for name, value in top1.items() if value is not None)}
    facts |= _strange(config, summary.predictions)
    facts |= _agreement(audit, summary.memory) if audit else {}
    if summary.refused:
        facts["refused"] = f"{len(summary.refused)} results wider than right ones, not to be used: {summary.refused}"
    both = ", both phases" if summary.phases and not summary.phases.prepared else ""
    facts |= _took(summary, both)
    cost, keys = summary.cost, f"keys {summary.bytes_keys / 1e6:.2f} MB once"
    facts["cost"] = f"{cost.bytes / 1e6:.2f} MB and {cost.rounds:.0f} rounds an image{both}; {keys}"
    facts |= _phases(summary)
    facts["links"] = _over(cost)
    place = f"server {config.server}" if config.server else f"engine {config.engine}, processes {config.processes}"
    hidden = ", NOTHING WAS ENCRYPTED" if summary.rehearsal else ""
    show(
        f"{'rehearsal in clear' if summary.rehearsal else 'infer'}: {summary.images} images, {place}{hidden}",
        {**facts, "saved": Path(config.out) / "summary.json"},
    )


Ready = Callable[[], AbstractContextManager[tuple[Parties, str]]]
"""Function that opens both parties, or a client alone, with the version of their program."""


def classify_pictures(config: InferConfig, source: str, ready: Ready) -> None:
    """Classify the pictures of ``source`` that are not in the results yet."""
    pictures = Arrays(source) if is_array(source) else Pictures(source)
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
        description, form = parties.client.known, inputs or _unknown(self.config)
        classes = form.classes
        if isinstance(pictures, Arrays):
            classes = classes if len(classes) == description.classes else ()  # those of data= are of pictures
            preparation: PreparesInputs = ArrayPreparation(description.pixels)
        else:
            ends = ends_of(description, form.levels, form.low)
            check_data(ends, inputs.shape if inputs else None, classes, form.data)
            preparation = preparation_for(ends, form.data, form.low)
        reading = Reading.of(description, version, classes, self.config.top_k)
        with (
            closing(read_ahead(pictures, self.listing, preparation)) as coming,
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


def _stated_inputs(config: InferConfig) -> InputSpec | None:
    """Return the input format that a program states, or its network if that is here."""
    if not config.server:
        inputs = read_inputs(Path(config.program), pinned(config.model_key), config.mode)
        if inputs is not None:
            return inputs
    if config.reference and (path := Path(config.reference) / CHECKPOINT).is_file():
        inputs = read_checkpoint(path).inputs
        if inputs is not None and inputs.data == config.data.name:
            return inputs
    return None


def _unknown(config: InferConfig) -> InputSpec:
    """Return the input format of a program of which nobody knows more than its data set's name."""
    return InputSpec((), 0, 0, (), config.data.name)


def _inputs(config: InferConfig) -> InputSpec | None:
    """Return the input format of a program as it is stated, else from its data set."""
    if (inputs := _stated_inputs(config)) is not None:
        return inputs
    try:
        with counting("Decoding images") as progress:
            data = load_for(config.data, progress)
    except RuleError as error:
        show_text(f"Classes are numbers: {error}")
        return None
    return inputs_of(data, config.data.name)
