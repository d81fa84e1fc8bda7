"""Accuracy over predicted latency, method beside method, as PrivCirNet plots it (Figures 8 and 9).

Every cell is a method at a budget, the latency of one block size everywhere. Each starts from the same dense network
and is fine-tuned alike. `python benchmarks/pareto.py --help` lists the settings.

python benchmarks/pareto.py init=outputs/train data=cifar10 data.root=/images
"""

from pathlib import Path

from privcirnet.console import counting, progress_bar, script, show_text
from privcirnet.data import load_for
from privcirnet.pipeline.pareto import cells, table
from privcirnet.pipeline.pareto.config import ParetoConfig


@script(ParetoConfig)
def main(config: ParetoConfig) -> None:
    """Run the cells that are asked for, then draw whatever is complete."""
    if not config.draw:
        with counting("Decoding images") as progress:
            data = load_for(config.data, progress)
        cells.run(config, data, progress_bar)
    show_text(table.draw(Path(config.out)))


if __name__ == "__main__":
    main()
