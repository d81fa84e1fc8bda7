"""Which networks of timm and torchvision become circulant, train, are exported and run encrypted, and why not others.

python benchmarks/network_coverage.py --networks resnet18 torchvision/mobilenet_v2
python benchmarks/network_coverage.py --out docs/coverage.md

Each network has random weights, its statistics are measured on smooth random images, and it runs in a process of its
own: polynomial_, b = 4 wherever it fits, one training step, 8 bits, measured bounds, and one encrypted image whose
every value is compared with the integer network. Done ones are kept in outputs/coverage; remove that to begin anew.
"""

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from privcirnet.config import HEConfig
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.nn.candidates import uniform_sizes
from privcirnet.nn.convert import circulant_
from privcirnet.nn.fuse import fuse
from privcirnet.nn.quantize import quantize
from privcirnet.pipeline.bench.results import markdown
from privcirnet.pipeline.evaluation import evaluate
from privcirnet.pipeline.export import lower_for
from privcirnet.pipeline.reproduce.untrained import LEVELS, LOG_STEP, keep_last_statistics_, smooth_pixels
from privcirnet.surgery import polynomial_

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
_IMAGES, _CLASSES, _BLOCK = 64, 10, 4
_FOLDER = Path("outputs/coverage")


@dataclass
class Found:
    """How far a network came.

    Attributes:
        network: its name.
        side: of its images.
        steps: that it took, of :data:`STEPS`.
        reason: why it took no more; "" if it took all.
        seconds: of the encrypted image.
    """

    network: str
    side: int
    steps: list[str]
    reason: str = ""
    seconds: float = 0.0


def examined(name: str, engine: str) -> Found:
    """Return how far a network comes; call it in a process of its own.

    Args:
        name: of timm, or of torchvision.models behind "torchvision/".
        engine: that runs it encrypted.
    """
    found = Found(name, SIDES.get(name, 32), [])
    try:
        _examine(created(name), smooth_images(found.side), found, engine)
    except RuleError as error:
        found.reason = str(error)
    except Exception as error:
        found.reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return found


def created(name: str) -> nn.Module:
    """Return a network with random weights.

    Args:
        name: as for :func:`examined`.
    """
    torch.manual_seed(0)
    if name.startswith("torchvision/"):
        import torchvision

        sized = {"image_size": SIDES[name]} if "vit" in name else {}
        return torchvision.models.get_model(name.removeprefix("torchvision/"), num_classes=_CLASSES, **sized)
    import timm

    return timm.create_model(name, num_classes=_CLASSES)


def smooth_images(side: int) -> ImageData:
    """Return random images without sharp edges.

    Args:
        side: of an image.
    """
    images, labels = smooth_pixels(_IMAGES, side), torch.arange(_IMAGES) % _CLASSES
    return ImageData(images, labels, images, labels, LOG_STEP, LEVELS, tuple("abcdefghij"))


def _examine(model: nn.Module, data: ImageData, found: Found, engine: str) -> None:
    images = data.real(data.train_images)
    polynomial_(model, images[:2])
    found.steps.append("polynomial")
    circulant_(model, uniform_sizes(model, _BLOCK))
    found.steps.append("circulant")
    _train_(model, images, data.train_labels)
    found.steps.append("trained")
    network = quantize(fuse(model), [images], data.log_step)
    lowered, _ = lower_for(HEConfig(profile="counted", bounds="measured", failure_bits=8), network, data)
    found.steps.append("exported")
    started = time.perf_counter()
    run = evaluate(lowered.program, {}, data.test_images[:1].numpy().astype(np.int64), engine=engine)
    found.seconds = time.perf_counter() - started
    if run.wrong != [[]]:
        raise RuleError("every node must be the integer network's", got=str(run.wrong[0][:3]), remedy="report this")
    found.steps.append("encrypted")


def _train_(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Make one step, and leave the statistics of all images."""
    keep_last_statistics_(model)
    nn.functional.cross_entropy(model.train()(images), labels).backward()
    torch.optim.SGD(model.parameters(), lr=1e-4).step()
    with torch.no_grad():
        model(images)
    model.eval()


def table(rows: list[Found]) -> str:
    """Return a Markdown table.

    Args:
        rows: one for each network.
    """
    return markdown(
        [
            {"network": row.network, "side": str(row.side)}
            | {step: "yes" if step in row.steps else "-" for step in STEPS}
            | {"why not": row.reason.replace("|", "/")}
            for row in rows
        ]
    )


def main() -> None:
    """Examine networks one by one, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(SIDES), help="of timm, or torchvision/NAME")
    parser.add_argument("--engine", default="kernel", help="kernel, tenseal or cleartext")
    parser.add_argument("--out", type=Path, help="write the table to this file instead of printing it")
    given = parser.parse_args()
    _FOLDER.mkdir(parents=True, exist_ok=True)
    rows: list[Found] = []
    for name in given.networks:
        kept = _FOLDER / f"{name.replace('/', '_')}.json"
        if not kept.is_file():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                row = pool.submit(examined, name, given.engine).result()
            kept.write_text(json.dumps(asdict(row)))
        rows.append(Found(**json.loads(kept.read_text())))
        print(f"{name}: {', '.join(rows[-1].steps) or 'nothing'}; {rows[-1].reason}", flush=True)
    text = table(rows)
    if given.out:
        given.out.write_text(
            f"# Networks of others\n\n`python benchmarks/network_coverage.py --out docs/coverage.md`\n\n{text}"
        )
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
