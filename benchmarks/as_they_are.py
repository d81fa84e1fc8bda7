"""Networks of timm and torchvision as they are: trained for a short while, 8 bits without training, encrypted exactly.

python benchmarks/as_they_are.py --data cifar10 --root /images
python benchmarks/as_they_are.py --data cifar10 --root /images --networks convnext_atto --trained outputs/own

Each goes down ladder.py: train, qat without an epoch, export, and infer on one image, on the kernel engine. What is
complete in --out is not run again. The logits must be the quantized network's, every one, and infer.py's audit of all
values without a fault. The table has the top-1 of all held-out images, and of infer.py alone its processor seconds,
set-up included, and the most memory of both parties. --trained takes networks from its folders of their names.
"""

import argparse
import resource
import subprocess
import sys
from pathlib import Path

import torch

import privcirnet as pc
from benchmarks.bench.results import markdown
from privcirnet.artifact.summaries import InferenceSummary, IntegerAudit, Training, read_record
from privcirnet.config import DataConfig
from privcirnet.data import load_for

NETWORKS = {
    "torchvision/resnet18": "++stages.train.recipe.learning_rate=6e-3",
    "mobilenetv2_100": "++stages.train.recipe.learning_rate=6e-3",
    "efficientnet_b0": "++stages.train.recipe.learning_rate=6e-3",
    "convnext_atto": "",
    "deit_tiny_patch16_224": "++model.arguments.img_size=32 ++model.arguments.patch_size=8",
}
"""What each sets besides."""
CHAIN = (
    "chain=[train,qat,export,infer]",
    "++stages={train:{recipe:{epochs:2,batch_size:128,optimizer:muon,momentum:0.95,learning_rate:2e-3,clip_gradient:1,"
    "ema:0.99,flip:true,crop:2}},qat:{recipe:{epochs:0}},export:{he:{profile:counted,bounds:measured}},"
    "infer:{images:1}}",
)


def climbed(name: str, root: Path, given: argparse.Namespace) -> float:
    """Take a network down the ladder; return the processor seconds of its inference, 0 if that was complete."""
    words = [
        *CHAIN,
        f"name={root.name}",
        f"root={root}",
        f"data={given.data}",
        f"data.root={given.root}",
        f"model.name={name}",
    ]
    words += NETWORKS.get(name, "").split()
    words.append(f"++stages.infer.reference={trained_in(root, given)}")
    if given.trained:
        words += ["chain=[qat,export,infer]", f"++stages.qat.recipe.init={trained_in(root, given)}"]
    for until in ("export", "infer"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "ladder.py", *words, f"until={until}"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def trained_in(root: Path, given: argparse.Namespace) -> Path:
    """Return the run directory of the trained network."""
    return given.trained / root.name if given.trained else root / "train"


def row(name: str, root: Path, given: argparse.Namespace) -> dict[str, str]:
    """Return the row of a network."""
    seconds = climbed(name, root, given)
    dense, eight = (read_record(Training, of / "summary.json") for of in (trained_in(root, given), root / "qat"))
    infer = read_record(InferenceSummary, root / "infer" / "summary.json")
    data = load_for(DataConfig(name=given.data, root=given.root))
    with torch.no_grad():
        wanted = pc.network(root / "qat").double()(data.real(data.test_images[:1]).double())[0]
    logits = torch.tensor(infer.predictions[0].logits, dtype=torch.float64)
    assert isinstance(infer.audit, IntegerAudit)
    assert infer.audit.logits_equal == infer.images, name
    assert torch.equal(logits, wanted), name
    return {
        "network": name,
        "float, top-1": f"{dense.top1:.2f} %",
        "8 bits": f"{eight.top1:.2f} %",
        "logits equal": f"{len(logits)} of {len(logits)}",
        "MB": f"{infer.cost.bytes / 1e6:.1f}",
        "round trips": f"{infer.cost.rounds:.0f}",
        "processor s": f"{seconds:.0f}",
        "GB": f"{sum(infer.memory.values()) / 1e9:.1f}",
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=[*NETWORKS], help="of timm, or torchvision/NAME")
    parser.add_argument("--data", default="cifar10", help="as data= of train.py")
    parser.add_argument("--root", default="data", help="as data.root= of train.py")
    parser.add_argument("--trained", type=Path, help="folder of trained networks")
    parser.add_argument("--out", type=Path, default=Path("outputs/as_they_are"))
    given = parser.parse_args()
    print(markdown([row(name, given.out / name.replace("/", "_"), given) for name in given.networks]), end="")


if __name__ == "__main__":
    main()
