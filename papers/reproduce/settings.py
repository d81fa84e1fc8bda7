"""The schema of reproduce.py."""

from dataclasses import dataclass


@dataclass
class ReproduceConfig:
    """Settings of reproduce.py: the papers' tables beside ours."""

    table: str = "quick"
    """a table, a paper's tables (privcirnet), all: everything measured here, or quick: counted here, else as stored."""
    root: str = "outputs"
    """folder that holds the run directories."""
    out: str = "${root}/reproduce"
    """this run's directory: summary.json and pictures."""
    page: str = "${out}/papers.md"
    """the page of results; its pictures stand beside it."""
    images: str = ""
    """folder of the data sets' files, for accuracies and encrypted networks; empty: those cells are as stored."""
    store: str = ""
    """file of measurements to add to, so that quick has them; that of this project is in papers/reproduce."""
    threads: int = 0
    """number of threads; 0: one for each core. Layers are measured on one thread."""
