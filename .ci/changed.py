"""Print the files of tests whose slow ones what changed can break, by the table in CONTRIBUTING.md.

Changed is what differs from the commit that .ci/passed names: the last one of which `make test-all` passed.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def table(text: str) -> list[tuple[list[str], list[str]]]:
    """Return the rows of CONTRIBUTING.md under "Slow tests": what changed, and which tests it can break."""
    part = text.split("## Slow tests")[1].split("\n## ", maxsplit=1)[0]
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", part, flags=re.MULTILINE)
    return [(re.findall(r"`(.+?)`", changed), re.findall(r"`(.+?)`", tests)) for changed, tests in rows]


def affected(paths: list[str], rows: list[tuple[list[str], list[str]]]) -> set[str]:
    """Return the tests that changed paths can break: their own, those of their rows, and all where no row is."""
    found = set[str]()
    for path in paths:
        if path.startswith("tests/"):
            found.add(path if Path(path).name.startswith("test_") else str(Path(path).parent))
            continue
        own = [tests for changed, tests in rows if any(path.startswith(start) for start in changed)]
        found.update(*own) if own else found.add("tests")
    return {"tests"} if "tests" in found else found


def changed() -> list[str] | None:
    """Return the paths that changed since .ci/passed; None if nobody can tell."""
    since = (ROOT / ".ci" / "passed").read_text().strip()
    command = ["git", "diff", "--name-only", "--no-renames", since, "HEAD", "--", ":!.ci/passed"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else None


if __name__ == "__main__":
    paths = changed()
    found = {"tests"} if paths is None else affected(paths, table((ROOT / "CONTRIBUTING.md").read_text()))
    here = {path for pattern in found for path in ROOT.glob(pattern)}
    print(*sorted(str(path.relative_to(ROOT)) for path in here), sep="\n", end="")
