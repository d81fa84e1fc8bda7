"""Classify held-out images encrypted and check every step, or pictures of a folder. `privcirnet infer --help`."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from privcirnet.artifact import write_arrays, write_json
from privcirnet.artifact.run import check_replaced
from privcirnet.artifact.summaries import InferenceSummary, LinkPrediction, Prediction, plain
from privcirnet.cli.console import (
    counting,
    fail,
    inference_bar,
    progress_bar,
    show,
    show_rows,
    show_text,
)
from privcirnet.cli.pictures import classify_pictures
from privcirnet.cli.settings import script
from privcirnet.config import InferConfig
from privcirnet.data import load_for
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.he.program.signature import pinned
from privcirnet.he.protocol.offline.prepared_work import PreparedWork
from privcirnet.he.protocol.one_message.session import OneMessageClient
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.system import threads
from privcirnet.runs.compiled import check_memory, client_of, infer, read_mode
from privcirnet.runs.evaluation import Mode, evaluate
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import Parties, RunOptions, start_server, warm_up
from privcirnet.service.access import ClientAccess
from privcirnet.service.address import parse_address
from privcirnet.service.client import Retries, ServiceClient
from privcirnet.service.programs import version_of
from privcirnet.train import stages
from privcirnet.train.accuracy import predict

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
    with inference_bar(len(labels)) as progress:
        evaluation = evaluate(mode, images.numpy().astype(np.int64), _how(config), progress, progress_bar)
    return replace(evaluation.summary(reference, labels), classes=list(data.classes))


def _mode(config: InferConfig) -> Mode:
    return read_mode(Path(config.program), config.mode, pinned(config.model_key))


def _ask(config: InferConfig, data: ImageData, images: Tensor, labels: np.ndarray) -> InferenceSummary:
    """Run the client alone, without program folder and weights."""
    reference = _predicted(config, data, images) if config.reference else None
    keep, integers = bool(config.prepared_folder), images.numpy().astype(np.int64)
    prepared_work = _prepared_work(config)
    with closing(prepared_work), _asked(config, prepared_work) as remote, inference_bar(len(labels)) as progress:
        summary = infer(remote, integers, _how(config), progress, keep=keep).summary(reference, labels)
    return replace(summary, server=config.server, classes=list(data.classes))


def _page(config: InferConfig) -> None:
    """Serve the client's page on loopback until it is interrupted."""
    from privcirnet.page.content import Content, TestImages
    from privcirnet.page.server import serve

    threads.use(config.threads)
    tests, classes, notes, levels = None, (), (), 0
    try:
        with counting("Decoding images") as progress:
            data = load_for(config.data, progress)
    except RuleError as error:
        notes = (f"No test images: {error}",)
    else:
        images, labels = data.held_out(_TESTS)
        tests, classes, levels = TestImages(images.numpy(), labels.tolist()), data.classes, data.levels
    place = f"server {config.server}" if config.server else "its server is another process of this machine"
    content = Content(config.data.name, place, not config.rehearsal, classes, tests, notes, levels)
    with closing(_prepared_work(config)) as prepared_work:
        connect, announce = partial(_connected, config, prepared_work), partial(_show_address, config, place)
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


def _show_address(config: InferConfig, place: str, address: str) -> None:
    hidden = ", NOTHING IS ENCRYPTED" if config.rehearsal else ""
    facts = {"open": address, "keep": "it to yourself: whoever has it can use the page; Ctrl-C ends it"}
    show(f"infer: a page for {config.data.name}, {place}{hidden}", facts)


def _predicted(config: InferConfig, data: ImageData, images: Tensor) -> np.ndarray:
    return predict(stages.load_network(config.reference, data), data, images).argmax(dim=1).numpy()


def _took(summary: InferenceSummary, both: str) -> dict[str, str]:
    """Return the time of images, and of the setup before them."""
    first, *later = summary.seconds_images or [0.0]
    rest = f", {np.median(later):.3f} s the others (median)" if later else ""
    warm = "" if summary.seconds_warm_up is None else f", {summary.seconds_warm_up:.1f} s to warm up"
    return {"time": f"{first:.3f} s the first image{rest}{both}; {summary.seconds_setup:.1f} s to set up{warm}"}


def _phases(summary: InferenceSummary) -> dict[str, str]:
    """Return the costs of the offline and the online phase."""
    facts = dict[str, str]()
    if ahead := summary.preparation:
        rounds = "" if ahead.rounds_per_image is None else f" and {ahead.rounds_per_image:.1f} rounds"
        cost = f"{ahead.seconds_per_image:.3f} s, {ahead.bytes_per_image / 1e6:.2f} MB{rounds} an image"
        when = "" if summary.prepared else " (made after the image had come; prepare=8 makes it before)"
        facts["offline"] = f"{cost}, its preparation{when}; {_over(ahead.links)}"
    if online := summary.online:
        cost = f"{online.seconds_per_image:.3f} s, {online.bytes_per_image / 1e6:.2f} MB and {online.rounds} rounds"
        facts["online"] = f"{cost} an image; {_over(online.links)}"
        facts["prepared"] = f"{summary.prepared} of {summary.images} images, before they came"
    if summary.dropped:
        facts["unprepared"] = "; ".join(summary.dropped[-_REASONS:])
    return facts


def _agreement(summary: InferenceSummary) -> dict[str, str]:
    """Return the precision of results against those in clear, and the cost of a circuit."""
    if summary.exact:
        equal = f"{summary.logits_equal} images follow the integer network {summary.in_words_exact}"
        return {"equal": f"{equal}; {summary.argmax_equal} with the same class"}
    beyond = f"; {summary.beyond} are beyond the bounds, not to be used" if summary.beyond else ""
    sizes = summary.bytes_keys_server or 0, summary.bytes_weights or 0, sum(summary.memory.values())
    keys, weights, memory = (size / 1e9 for size in sizes)
    rotations = (summary.operations or {}).get("rotate")
    return {
        "equal": f"logits right to {summary.logits_bits:.1f} bits of the largest one, in the worst of all images; "
        f"{summary.argmax_equal} with the same class as in clear{beyond}",
        "circuit": f"{summary.bootstrappings} bootstrappings, {summary.levels} levels, {rotations} rotations; "
        f"{summary.processor_seconds_predicted:.0f} processor seconds predicted",
        "memory": f"{keys:.2f} GB of keys, {weights:.2f} GB of encoded weights, {memory:.2f} GB at most in all",
    }


def _over(links: Mapping[str, LinkPrediction]) -> str:
    text = ", ".join(f"{name} {over.seconds:.2f} s" for name, over in links.items())
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
    top1 = {"float": summary.top1_float, summary.clear_name: summary.top1_clear, summary.done: summary.top1_encrypted}
    facts = {"top-1": ", ".join(f"{name} {value:.2f} %" for name, value in top1.items() if value is not None)}
    facts |= _strange(config, summary.predictions)
    facts |= {} if config.server else _agreement(summary)
    if summary.refused:
        facts["refused"] = f"{len(summary.refused)} results wider than right ones, not to be used: {summary.refused}"
    both = ", both phases" if summary.online and not summary.prepared else ""
    facts |= _took(summary, both)
    keys = f"keys {(summary.bytes_keys or 0) / 1e6:.2f} MB once"
    facts["cost"] = f"{summary.bytes_per_image / 1e6:.2f} MB and {summary.rounds} rounds an image{both}; {keys}"
    facts |= _phases(summary)
    facts["links"] = _over(summary.links)
    place = f"server {config.server}" if config.server else f"engine {config.engine}, processes {config.processes}"
    hidden = ", NOTHING WAS ENCRYPTED" if summary.rehearsal else ""
    show(
        f"{'rehearsal in clear' if summary.rehearsal else 'infer'}: {summary.images} images, {place}{hidden}",
        {**facts, "saved": Path(config.out) / "summary.json"},
    )
