"""Accuracy over predicted latency, method beside method, as PrivCirNet plots it (Figures 8 and 9).

Every cell is a method at a budget, the latency of one block size everywhere. Each starts from the same dense network
and is fine-tuned alike. `python benchmarks/pareto.py --help` lists the settings.

python benchmarks/pareto.py mobilenetv2_cifar10_short data.root=/images
"""

import sys
from pathlib import Path

from privcirnet.config import LadderConfig
from privcirnet.console import counting, progress_bar, readable_errors, show_text
from privcirnet.data import load_for
from privcirnet.pipeline import ladder
from privcirnet.pipeline.pareto import cells, table
from privcirnet.pipeline.pareto.config import ParetoConfig
from privcirnet.settings import composed, script


@script(ParetoConfig)
def main(config: ParetoConfig) -> None:
    """Run the cells that are asked for, then draw whatever is complete."""
    if not config.draw:
        with counting("Decoding images") as progress:
            data = load_for(config.data, progress)
        cells.run(config, data, progress_bar)
    show_text(table.draw(Path(config.out)))


def expanded(arguments: list[str]) -> list[str]:
    """Return arguments with the name of an experiment, if it comes first, replaced by its fine-tuning stage's.

    Options such as -m come first then, because Hydra takes no settings on both sides of them.
    """
    if not arguments or "=" in arguments[0] or arguments[0].startswith("-"):
        return arguments
    chain = composed("ladder", LadderConfig, [f"experiment={arguments[0]}"])
    return sorted([*ladder.overrides(chain, "finetune"), *arguments[1:]], key=lambda word: not word.startswith("-"))


if __name__ == "__main__":
    with readable_errors():
        sys.argv[1:] = expanded(sys.argv[1:])
    main()
