"""Accuracy over predicted latency, method beside method, as PrivCirNet plots it (Figures 8 and 9).

Every cell is a method at a budget, the latency of one block size everywhere. Each starts from the same dense network
and is fine-tuned alike. `python -m papers.pareto --help` lists the settings.

python -m papers.pareto mobilenetv2_cifar10_short data.root=/images
"""

from pathlib import Path

from papers.pareto import cells, table
from papers.pareto.config import ParetoConfig
from privcirnet.cli import ladder
from privcirnet.cli.console import counting, progress_bar, show_text
from privcirnet.cli.settings import composed, script
from privcirnet.config import LadderConfig
from privcirnet.data import load_for


@script(ParetoConfig, "pareto")
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
