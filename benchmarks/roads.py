"""Seconds, messages and memory of five networks on three roads: exact steps, polynomials, and no rounds at all.

python benchmarks/roads.py --page docs/roads.md                     everything that is missing, and the page's table
python benchmarks/roads.py --networks tutorial_mnist --roads exact  one row

Networks have random weights: costs do not depend on what a network has learned. Client and server are two processes
with gRPC on loopback in between. On the first two roads every inference is prepared, so both phases are told apart. All
values of every image are compared with the integer network. Medians, without the first image. Each row is kept in --out
as soon as it is measured, and the same command goes on where it ended. Rows that nobody has measured with this command
yet come from other pages, which the table names.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType

import torch
from untrained import measure_

from benchmarks.bench.results import markdown
from papers.falcon2020.config import Falcon2020Config
from papers.falcon2020.lower import leveled_program
from papers.falcon2020.mode import Leveled
from papers.reproduce.untrained import LEVELS, LOG_STEP, RandomNetwork, random_network
from privcirnet.artifact.records import write_json, write_text
from privcirnet.cli.console import progress_bar
from privcirnet.config import HEConfig
from privcirnet.data import ImageData
from privcirnet.he.planning.profile import Profile
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from privcirnet.runs.evaluation import Evaluation, Mode, evaluate
from privcirnet.runs.export import lower_on
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import RunOptions
from privcirnet.runs.profiles import find_profile

BEGIN, END = "<!-- measured -->\n", "<!-- end of what was measured -->\n"
ROADS = MappingProxyType({"exact": "exact", "polynomials": "polynomials", "leveled": "no rounds"})
"""Titles by name."""
POLYNOMIAL_BLOCK_SIZE = 8
"""Of networks with polynomials: they are trained anyway. A network as it is has dense weights."""


@dataclass(frozen=True)
class Network:
    """A network of the table.

    Attributes:
        model: name of its architecture.
        exact: arguments with which it has its own activations.
        polynomial: arguments with which it has polynomials.
        leveled: True if it runs without rounds on leveled BFV.
    """

    title: str
    model: str
    exact: Mapping[str, str]
    polynomial: Mapping[str, str] = field(default_factory=lambda: {"activation": "aespa"})
    side: int = 32
    channels: int = 3
    leveled: bool = False

    def roads(self) -> list[str]:
        """Return the roads on which this command measures the network."""
        return [road for road in ROADS if road != "leveled" or self.leveled]


NETWORKS = {
    "tutorial_mnist": Network(
        "MNIST, a convolution and two layers",
        "tutorial_mnist",
        {"activation": "relu"},
        {"activation": "square"},
        side=28,
        channels=1,
        leveled=True,
    ),
    "resnet10t": Network("ResNet-10-T of timm, 32 x 32", "resnet10t", {"activation": "own"}),
    "resnet18_cifar": Network("ResNet-18, CIFAR", "resnet18_cifar", {"activation": "relu"}),
    "mobilenetv2_cifar": Network("MobileNetV2, CIFAR", "mobilenetv2_cifar", {"activation": "relu6"}),
    "vit_cifar": Network(
        "ViT, CIFAR",
        "vit_cifar",
        {"activation": "gelu"},
        {"activation": "aespa", "norm": "batch", "attention": "polynomial"},
    ),
}


@dataclass(frozen=True)
class Row:
    """Costs of one image of a network on one road.

    Attributes:
        block_size: b of its layers.
        seconds: with the image, as are ``bytes`` of messages both ways and ``rounds``.
        ahead_s: seconds of the preparation; None if nothing is prepared.
        ahead_bytes: messages of the preparation.
        key_bytes: keys, sent once.
        memory_bytes: largest memory of the server's process.
        source: page with the figures; "" if this command measured them.
    """

    block_size: int
    seconds: float
    bytes: float | None
    rounds: int | None = None
    ahead_s: float | None = None
    ahead_bytes: float | None = None
    key_bytes: float | None = None
    memory_bytes: float | None = None
    source: str = ""


_PREPARED, _CKKS, _PEERS = "../benchmarks/measured.md", "../papers/ckks.md", "../benchmarks/peers/README.md"
STATED = {
    ("tutorial_mnist", "leveled"): Row(1, 0.279, 1.43e6, 1, key_bytes=26.3e6, memory_bytes=0.436e9, source=_PEERS),
    ("resnet18_cifar", "exact"): Row(4, 0.23, 8.3e6, 35, 2.7, 61.1e6, source=_PREPARED),
    ("resnet18_cifar", "polynomials"): Row(8, 0.071, 7.3e6, 18, 0.757, 61.4e6, 19.9e6, 1.90e9, _PREPARED),
    ("resnet18_cifar", "leveled"): Row(1, 150, None, 1, memory_bytes=21.7e9, source=_CKKS),
    ("mobilenetv2_cifar", "exact"): Row(4, 0.67, 27.6e6, 105, 9.3, 213e6, source=_PREPARED),
    ("mobilenetv2_cifar", "polynomials"): Row(8, 0.122, 19.5e6, 36, 1.5, 133.4e6, 27.7e6, 1.85e9, _PREPARED),
    ("vit_cifar", "exact"): Row(4, 1.25, 21.9e6, 389, 11.0, 229e6, source=_PREPARED),
    ("vit_cifar", "polynomials"): Row(8, 0.148, 9.7e6, 29, 3.279, 103.4e6, 55.5e6, 2.44e9, _PREPARED),
}
"""Figures of earlier measurements, by network and road, for rows that this command has not measured."""


def measured(network: Network, road: str, given: argparse.Namespace) -> Row:
    """Return the row of a network on a road, measured now.

    Args:
        given: the command's arguments.

    Raises:
        RuleError: the network does not go this road.
    """
    block_size = POLYNOMIAL_BLOCK_SIZE if road == "polynomials" else 1
    arguments = network.exact if road == "exact" else network.polynomial
    torch.manual_seed(0)
    random = random_network(network.model, network.side, 10, block_size, arguments, network.channels)
    measure_(random.model, random.images)
    mode = leveled(random) if road == "leveled" else interactive(random, profile_of(given.out, given.profile))
    how = RunOptions(engine=given.engine, apart=True, prepare=road != "leveled")
    found = evaluate(mode, random.pixels[: given.images + 1].long().numpy(), how, bar=progress_bar)
    wrong = sorted({name for names in found.wrong for name in names})
    assert not wrong, f"{network.title}, {road}: {wrong} are not the integer network's"
    return row_of(found, block_size)


def row_of(found: Evaluation, block_size: int) -> Row:
    """Return the costs of an evaluation's typical image."""
    summary = found.summary(None, found.classes)
    once = {"key_bytes": summary.bytes_keys, "memory_bytes": summary.memory["server"]}
    image, ahead = summary.cost, ()
    if summary.phases and summary.phases.offline:
        image, offline = summary.phases.online, summary.phases.offline
        ahead = offline.seconds, offline.bytes
    return Row(block_size, image.seconds, image.bytes, int(image.rounds), *ahead, **once)


def interactive(random: RandomNetwork, profile: Profile) -> Mode:
    """Return the two-party program of a network: exact where it has activations that are no polynomials."""
    quantized = quantize(fuse(random.model), random.images, LOG_STEP)
    he = HEConfig(bounds="measured")
    planned = lower_on(he, quantized, random.samples, progress_bar, profile)
    return Interactive(planned.program)


def profile_of(out: Path, name: str) -> Profile:
    """Return operation times: this machine's, measured once and kept in a folder, a file's, or the papers' units."""
    kept = out / "profile.json"
    name = str(kept) if name == "calibrate" and kept.is_file() else name
    profile = find_profile(HEConfig(profile=name), bar=progress_bar)
    if name == "calibrate":
        write_json(kept, profile.to_dict())
    return profile


def leveled(random: RandomNetwork) -> Mode:
    """Return the program of a network that takes one request and one answer, on pixels of 8 bits."""
    labels = torch.zeros(len(random.pixels), dtype=torch.long)
    both = random.pixels, labels
    data = ImageData(*both, *both, LOG_STEP, LEVELS, tuple(map(str, range(10))))
    program = leveled_program(Falcon2020Config(pixel_bits=8), random.model, data)
    return Leveled(program)


def table(rows: Mapping[tuple[str, str], Row]) -> str:
    """Return the table of rows in Markdown; a network's roads stand together, and what may be measured yet is empty."""
    lines = list[dict[str, str]]()
    for name, network in NETWORKS.items():
        for road, title in ROADS.items():
            row = rows.get((name, road))
            if row or road in network.roads():
                lines.append({"network": network.title, "road": title} | (cells(row) if row else _NONE))
    return markdown(lines)


def cells(row: Row) -> dict[str, str]:
    """Return what the table says of a row."""
    page = Path(row.source.removesuffix("/README.md")).stem
    return {
        "b": str(row.block_size),
        "ahead: s": _shown(row.ahead_s),
        "ahead: MB": _shown(row.ahead_bytes, 1e6),
        "image: s": _shown(row.seconds),
        "image: MB": _shown(row.bytes, 1e6),
        "rounds": _shown(row.rounds),
        "keys, MB": _shown(row.key_bytes, 1e6),
        "memory, GB": _shown(row.memory_bytes, 1e9),
        "from": f"[{page}]({row.source})" if row.source else "this command",
    }


def _shown(amount: float | None, unit: float = 1) -> str:
    return "-" if amount is None else f"{amount / unit:.3g}"


_NONE = dict.fromkeys(cells(Row(1, 0, 0)), "-")


def read_rows(out: Path) -> dict[tuple[str, str], Row]:
    """Return all rows, the measured ones of a folder in place of those of other pages."""
    return STATED | {
        (name, road): Row(**json.loads(path.read_text()))
        for name in NETWORKS
        for road in ROADS
        if (path := out / f"{name}-{road}.json").is_file()
    }


def write_on(page: Path, text: str) -> None:
    """Replace what stands between a page's marks."""
    before, rest = page.read_text().split(BEGIN)
    write_text(page, f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


def main() -> None:
    """Measure the rows that are missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=[*NETWORKS], choices=NETWORKS)
    parser.add_argument("--roads", nargs="+", default=[*ROADS], choices=ROADS)
    parser.add_argument("--images", type=int, default=2, help="of each row, after one that warms up; 15 at most")
    parser.add_argument("--profile", default="calibrate", help="of plans: measured once, a profile.json, or counted")
    parser.add_argument("--engine", default="kernel")
    parser.add_argument("--out", type=Path, default=Path("outputs/roads"))
    parser.add_argument("--page", type=Path, help="Markdown whose table is replaced, such as docs/roads.md")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.networks:
        for road in (road for road in NETWORKS[name].roads() if road in given.roads):
            kept = given.out / f"{name}-{road}.json"
            if not kept.is_file():
                write_json(kept, asdict(measured(NETWORKS[name], road, given)))
    text = table(read_rows(given.out))
    if given.page:
        write_on(given.page, text)
    print(text, end="")


if __name__ == "__main__":
    main()
