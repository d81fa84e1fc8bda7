"""The mean of the weights of networks that were fine-tuned from the same one, each in its own way.

They lie in one valley of the loss, and its middle is lower than they are. The mean costs nothing to run. Statistics of
norms must be measured anew: the mean of three MobileNetV2 with AESPA on CIFAR-100, of 72.17, 72.02 and 72.24 %, has
72.57 % with its own.

Source: Wortsman et al., "Model soups" (ICML 2022), the uniform soup of Section 2.

python -m papers.recipes.averaging MEAN.safetensors RUN RUN ...
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from privcirnet.artifact import Checkpoint, read_checkpoint, write_checkpoint
from privcirnet.cli.console import readable_errors
from privcirnet.config import run_file
from privcirnet.errors import RuleError
from privcirnet.train.stages import CHECKPOINT


def mean_of(networks: Sequence[Checkpoint]) -> Checkpoint:
    """Return the mean of networks.

    Args:
        networks: of the same architecture with the same block sizes and composed layers, in floating point; at least
            one.

    Returns:
        The first one's facts, and the mean of all tensors but counters.
    """
    first = networks[0]
    for other in networks:
        alike = replace(other, tensors={}, stage="") == replace(first, tensors={}, stage="")
        if not alike or other.bits or other.tensors.keys() != first.tensors.keys():
            got = f"{other.model} of stage {other.stage} beside {first.model}"
            raise RuleError(
                "networks must differ in their weights alone to be averaged", got=got, remedy="leave it out"
            )
    tensors = {name: _mean([network.tensors[name] for network in networks]) for name in first.tensors}
    return replace(first, tensors=tensors)


def _mean(arrays: Sequence[np.ndarray]) -> np.ndarray:
    first = arrays[0]
    return np.mean(arrays, axis=0, dtype=np.float64).astype(first.dtype) if first.dtype.kind == "f" else first


def main() -> None:
    """Write the mean of runs as a checkpoint, from which recipe=replace measures statistics anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mean", type=Path, help="checkpoint to write")
    parser.add_argument("runs", nargs="+", help="run directories or checkpoints; facts are the first one's")
    given = parser.parse_args()
    with readable_errors():
        files = [run_file(run, CHECKPOINT, "train.py") for run in given.runs]
        write_checkpoint(given.mean, mean_of([read_checkpoint(file) for file in files]))


if __name__ == "__main__":
    main()
