"""Write the mean of networks as a checkpoint, from which ``train.py recipe=replace`` measures statistics anew.

python -m papers.recipes MEAN.safetensors RUN RUN ...
"""

import argparse
from pathlib import Path

from papers.recipes.averaging import mean_of
from privcirnet.artifact.records import read_checkpoint, write_checkpoint
from privcirnet.cli.console import readable_errors
from privcirnet.config import run_file
from privcirnet.train.stages import CHECKPOINT


def main() -> None:
    """Average the runs that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mean", type=Path, help="checkpoint to write")
    parser.add_argument("runs", nargs="+", help="run directories or checkpoints; facts are the first one's")
    given = parser.parse_args()
    with readable_errors():
        files = [run_file(run, CHECKPOINT, "train.py") for run in given.runs]
        write_checkpoint(given.mean, mean_of([read_checkpoint(file) for file in files]))


if __name__ == "__main__":
    main()
