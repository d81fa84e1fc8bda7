"""Which networks of timm and torchvision become circulant, train, are exported and run encrypted, and why not others.

python benchmarks/network_coverage.py --networks resnet18 torchvision/mobilenet_v2
python benchmarks/network_coverage.py --out benchmarks/coverage.md
python benchmarks/network_coverage.py --networks dla34 --sample 10 --seed 41 --road readme --out benchmarks/coverage.md

Each network has random weights, its statistics are measured on smooth random images, and it runs in a process of its
own: polynomial_, b = 4 wherever it fits, one training step, 8 bits, measured bounds, and one encrypted image whose
every value is compared with the integer network. With --road readme it goes through the lines under Python in README.md
instead, as they stand there; their random images are small and few. Before it is trained, as it is created (with
branches of scale zero), it is compiled and run too; encrypted logits are compared with the quantized network's, bit for
bit. --road readme_polynomials begins with polynomial_, and trains before it compiles. With --road exact it is quantized
as it is: activations and gates run exactly. --sample adds networks that a seed draws from timm and torchvision, of at
most 30 million parameters, which take images of 32 or 64 pixels and have a polynomial form; it names those that it
leaves out. Done ones are kept in outputs/coverage; remove that to begin anew.
"""

import argparse
import contextlib
import json
import multiprocessing
import random
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

import privcirnet as pc
from benchmarks.bench.results import markdown
from papers.reproduce.untrained import LEVELS, LOG_STEP, keep_last_statistics_, smooth_pixels
from privcirnet.config import HEConfig
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.nn.agreement import exact_value
from privcirnet.passes.convert import circulant_, uniform_sizes
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from privcirnet.passes.surgery import polynomial_
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.export import lower_for
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import RunOptions

T = TypeVar("T")

SIDES = {
    **dict.fromkeys(("resnet18", "mobilenetv2_100", "efficientnet_lite0", "regnetx_002", "repvgg_a0", "resnet10t"), 32),
    **dict.fromkeys(("densenet121", "torchvision/densenet121", "torchvision/resnet18", "torchvision/mobilenet_v2"), 32),
    **dict.fromkeys(("convnext_atto", "dla46_c", "edgenext_xx_small", "ghostnet_050", "hgnetv2_b0"), 64),
    **dict.fromkeys(
        ("mobilenetv3_small_050", "nf_regnet_b0", "poolformer_s12", "mobilevit_xxs", "mobilevitv2_050"), 64
    ),
    **dict.fromkeys(("vgg11_bn", "torchvision/vgg11_bn"), 224),
    **dict.fromkeys(
        ("deit_tiny_patch16_224", "efficientformer_l1", "gmlp_ti16_224", "levit_128s", "mixer_s32_224"), 224
    ),
    **dict.fromkeys(("pit_ti_224", "swin_tiny_patch4_window7_224", "tiny_vit_5m_224"), 224),
    "torchvision/vit_b_16": 64,
}
"""Network -> side of its images: the smallest that is convenient for it."""
STEPS = ("polynomial", "circulant", "trained", "exported", "encrypted")
README_STEPS = ("fit", "search", "circulant", "compile", "run")
EXACT_STEPS = ("quantized", "compiled", "encrypted")
_IMAGES, _CLASSES, _BLOCK, _MOST_PARAMETERS = 64, 10, 4, 30e6
_FOLDER = Path("outputs/coverage")


@dataclass
class Found:
    """How far a network came.

    Attributes:
        network: its name.
        side: of its images.
        steps: that it took, of those of a :class:`Road`.
        reason: why it took no more; "" if it took all.
        seconds: of the encrypted image.
    """

    network: str
    side: int
    steps: list[str]
    reason: str = ""
    seconds: float = 0.0


def examined(name: str, engine: str, road: str = "polynomial", side: int = 0) -> Found:
    """Return how far a network comes; call it in a process of its own.

    Args:
        name: of timm, or of torchvision.models behind "torchvision/".
        engine: that runs it encrypted.
        road: of :data:`ROADS`.
        side: of its images; 0 for that in :data:`SIDES`.
    """
    found = Found(name, side or SIDES.get(name, 32), [])
    try:
        ROADS[road].take(created(name, side), found, engine)
    except RuleError as error:
        found.reason = str(error)
    except Exception as error:
        found.reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return found


def created(name: str, side: int = 0) -> nn.Module:
    """Return a network with random weights; arguments as for :func:`examined`."""
    torch.manual_seed(0)
    if name.startswith("torchvision/"):
        import torchvision

        sized = {"image_size": SIDES.get(name, 64)} if "vit" in name else {}
        return torchvision.models.get_model(name.removeprefix("torchvision/"), num_classes=_CLASSES, **sized)
    import timm

    if side:
        with contextlib.suppress(TypeError):  # of those that are made for any size
            return timm.create_model(name, num_classes=_CLASSES, img_size=side)
    return timm.create_model(name, num_classes=_CLASSES)


def smooth_images(side: int) -> ImageData:
    """Return random images without sharp edges.

    Args:
        side: of an image.
    """
    images, labels = smooth_pixels(_IMAGES, side), torch.arange(_IMAGES) % _CLASSES
    return ImageData(images, labels, images, labels, LOG_STEP, LEVELS, tuple("abcdefghij"))


def sampled(count: int, seed: int) -> Iterator[tuple[str, int | str]]:
    """Yield networks in the order that a seed draws, with the side of their images, or why they are left out.

    Args:
        count: of networks that are not left out.
        seed: of the order.
    """
    import timm
    import torchvision

    known = timm.list_models() + [f"torchvision/{n}" for n in torchvision.models.list_models(torchvision.models)]
    for name in random.Random(seed).sample(known, len(known)):
        if not count:
            return
        side = _side(name)
        count -= isinstance(side, int)
        yield name, side


def _side(name: str) -> int | str:
    """Return the side of images that a network takes and has a polynomial form at, or why there is none."""
    why = ""
    try:
        if (parameters := _parameters(name)) > _MOST_PARAMETERS:
            return f"{parameters / 1e6:.0f} million parameters"
        for side in (32, 64):
            try:
                pc.polynomial_(created(name), torch.rand(2, 3, side, side))
            except RuleError as error:
                why = str(error)
            else:
                return side
    except Exception as error:
        return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return why


def _parameters(name: str) -> int:
    """Return how many parameters a network has, without making them."""
    if name.startswith("torchvision/"):
        import torchvision

        weights = torchvision.models.get_model_weights(name.removeprefix("torchvision/"))
        return next(iter(weights)).meta["num_params"]
    with torch.device("meta"):
        return sum(p.numel() for p in created(name).parameters())


def _follow_readme(model: nn.Module, found: Found, engine: str, activation: str = "") -> None:
    images, labels = torch.rand(32, 3, found.side, found.side), torch.arange(32) % _CLASSES
    pair = images, labels

    def step(name: str, made: T) -> T:
        found.steps.append(name)
        return made

    def answered(name: str) -> None:
        settings = {"failure_bits": 12} if activation else {}
        program = step(name, pc.compile(model, images, profile="counted", progress=False, **settings))
        started = time.perf_counter()
        logits = program(images[:1], check=True, engine=engine).double()
        found.seconds = time.perf_counter() - started
        if not activation and not torch.equal(logits, exact_value(pc.quantize(model, images), images[:1]).flatten(1)):
            raise RuleError("logits must be the quantized network's", got="others", remedy="report this")

    if activation:
        step("polynomial", pc.polynomial_(model, images, activation=activation))
    else:
        answered("untrained")
    step("fit", pc.fit(model, pair, epochs=2, progress=False))
    plan = step("search", pc.search(model, pair, budget=pc.uniform(_BLOCK), profile="counted", progress=False))
    pc.circulant_(model, plan.block_sizes)
    step("circulant", pc.fit(model, pair, epochs=2, progress=False))
    answered("compile")
    found.steps.append("run")


def _examine(model: nn.Module, found: Found, engine: str) -> None:
    data = smooth_images(found.side)
    images = data.real(data.train_images)
    polynomial_(model, images[:2])
    found.steps.append("polynomial")
    circulant_(model, uniform_sizes(model, _BLOCK))
    found.steps.append("circulant")
    _train_(model, images, data.train_labels)
    found.steps.append("trained")
    network = quantize(fuse(model), images, data.log_step)
    planned = lower_for(HEConfig(profile="counted", bounds="measured", failure_bits=8), network, data)
    found.steps.append("exported")
    started = time.perf_counter()
    run = evaluate(Interactive(planned.program), data.test_images[:1].numpy().astype(np.int64), RunOptions(engine))
    found.seconds = time.perf_counter() - started
    if run.wrong != [[]]:
        raise RuleError("every node must be the integer network's", got=str(run.wrong[0][:3]), remedy="report this")
    found.steps.append("encrypted")


def _keep(model: nn.Module, found: Found, engine: str) -> None:
    """With statistics of the images, and no training."""
    data = smooth_images(found.side)
    images = data.real(data.train_images)
    keep_last_statistics_(model)
    with torch.no_grad():
        model.train()(images)
    quantized = pc.quantize(model.eval(), images, data.log_step)
    found.steps.append("quantized")
    program = pc.compile(quantized, images, profile="counted", nonlinear="exact", progress=False)
    found.steps.append("compiled")
    started = time.perf_counter()
    logits = program(images[:1], check=True, engine=engine)
    found.seconds = time.perf_counter() - started
    if not torch.equal(logits.double(), quantized.double().eval()(images[:1].double()).flatten(1)):
        raise RuleError("logits must be the quantized network's", got="others", remedy="report this")
    found.steps.append("encrypted")


class Road(NamedTuple):
    """One way to go.

    Attributes:
        heading: of its table.
        steps: in order.
        take: (network, what is noted of it, engine): takes them.
    """

    heading: str
    steps: tuple[str, ...]
    take: Callable[[nn.Module, Found, str], None]


ROADS = {
    "polynomial": Road("# Networks of others", STEPS, _examine),
    "exact": Road("## As they are", EXACT_STEPS, _keep),
    "readme": Road("## The lines of README.md", ("untrained", *README_STEPS), _follow_readme),
    "readme_polynomials": Road(
        "## The lines of README.md, with polynomials",
        ("polynomial", *README_STEPS),
        partial(_follow_readme, activation="aespa"),
    ),
}
"""By name, in the order of benchmarks/coverage.md."""


def _train_(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Make one step, and leave the statistics of all images."""
    keep_last_statistics_(model)
    nn.functional.cross_entropy(model.train()(images), labels).backward()
    torch.optim.SGD(model.parameters(), lr=1e-4).step()
    with torch.no_grad():
        model(images)
    model.eval()


def table(rows: list[Found], steps: tuple[str, ...] = STEPS) -> str:
    """Return a Markdown table.

    Args:
        rows: one for each network.
        steps: that they may have taken.
    """
    return markdown(
        [
            {"network": row.network, "side": str(row.side)}
            | {step: "yes" if step in row.steps else "-" for step in steps}
            | {"why not": row.reason.replace("|", "/")}
            for row in rows
        ]
    )


def written(text: str, table: str, command: str, road: str) -> str:
    """Return benchmarks/coverage.md with one of its tables replaced.

    Args:
        text: of the file, or "".
        table: new one.
        command: that made it.
        road: whose it is.
    """
    _, *parts = re.split(r"^(#.*)$", text, flags=re.MULTILINE)
    parts = dict(zip(parts[::2], parts[1::2], strict=True)) | {ROADS[road].heading: f"`{command}`\n\n{table}"}
    headings = [each.heading for each in ROADS.values() if each.heading in parts]
    return "\n".join(f"{heading}\n\n{parts[heading].strip()}\n" for heading in headings)


def main() -> None:
    """Examine networks one by one, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--networks", nargs="+", help="of timm, torchvision/NAME, or NAME:SIDE; those of benchmarks/coverage.md"
    )
    parser.add_argument("--sample", type=int, default=0, help="further networks that the seed draws")
    parser.add_argument("--seed", type=int, default=0, help="of --sample")
    parser.add_argument("--road", default="polynomial", choices=ROADS, help="which way; exact: nothing is replaced")
    parser.add_argument("--engine", default="kernel", help="kernel, tenseal or cleartext")
    parser.add_argument("--out", type=Path, help="write the table to this file instead of printing it")
    given = parser.parse_args()
    named = (each.partition(":") for each in given.networks or ([] if given.sample else SIDES))
    wanted = {name: int(side or 0) for name, _, side in named}
    for name, side in sampled(given.sample, given.seed) if given.sample else ():
        if isinstance(side, int):
            wanted.setdefault(name, side)
        else:
            print(f"left out: {name}: {side}", flush=True)
    folder = _FOLDER / given.road
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Found] = []
    for name, side in wanted.items():
        kept = folder / f"{name.replace('/', '_')}.json"
        if not kept.is_file():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                row = pool.submit(examined, name, given.engine, given.road, side).result()
            kept.write_text(json.dumps(asdict(row)))
        rows.append(Found(**json.loads(kept.read_text())))
        print(f"{name}: {', '.join(rows[-1].steps) or 'nothing'}; {rows[-1].reason}", flush=True)
    text = table(rows, ROADS[given.road].steps)
    if given.out:
        before = given.out.read_text() if given.out.is_file() else ""
        command = shlex.join(["python", *sys.argv])
        given.out.write_text(written(before, text, command, given.road))
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
