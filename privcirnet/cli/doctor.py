"""What is installed, what works, what is missing. `privcirnet doctor`."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from privcirnet.cli.console import readable_errors, show
from privcirnet.errors import RuleError
from privcirnet.runs import doctor
from privcirnet.runs.doctor import Finding


def main() -> None:
    """Show the diagnosis part by part; end with status 2 if something that is required does not work."""
    argparse.ArgumentParser(Path(sys.argv[0]).name, description=__doc__).parse_args()
    with readable_errors():
        findings = [
            *_shown("packages", doctor.packages()),
            *_shown("machine", doctor.machine()),
            *_shown("trials", doctor.trials()),
        ]
        _shown("optional", doctor.extras())
        check(findings)


def check(findings: Iterable[Finding]) -> None:
    """Check a diagnosis."""
    broken = [finding for finding in findings if finding.remedy]
    if broken:
        got = ", ".join(f"{finding.name} {finding.said}" for finding in broken)
        raise RuleError("what privcirnet requires must work", got=got, remedy="; ".join(f.remedy for f in broken))


def _shown(title: str, findings: Iterable[Finding]) -> list[Finding]:
    collected = list(findings)
    show(title, {finding.name: finding.said for finding in collected})
    return collected
