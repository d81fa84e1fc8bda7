"""The whole chain on the digits, then its report. `privcirnet demo --help`."""

from pathlib import Path

from privcirnet.commands import ladder, report
from privcirnet.config import DemoConfig
from privcirnet.settings import script


@script(DemoConfig)
def main(config: DemoConfig) -> None:
    """Run the stages that are not complete, then write and show the report."""
    ladder.climb(config)
    report.report(Path(config.root))
