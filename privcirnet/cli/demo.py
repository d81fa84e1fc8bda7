"""The whole chain on the digits, then its report. `privcirnet demo --help`."""

from pathlib import Path

from privcirnet.cli import ladder, report
from privcirnet.cli.settings import script
from privcirnet.config import DemoConfig


@script(DemoConfig)
def main(config: DemoConfig) -> None:
    """Run the stages that are not complete, then write and show the report."""
    ladder.run_chain(config)
    report.report(Path(config.root))
