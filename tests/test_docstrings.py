"""Every public function says what it returns, and what types and names leave open; the checker can fail."""

import pytest

from tests.conftest import ROOT
from tests.docstrings import gaps

pytestmark = pytest.mark.docs

FOLDERS = "privcirnet", "papers", "benchmarks/bench", "benchmarks/load"

COMPLETE = '''
def area(width: int, *, height: int) -> int:
    """Return the area.

    Args:
        width: in pixels.
        height: in pixels.

    Raises:
        RuleError: it is empty.
    """
    raise RuleError("it must not be empty")
'''


def test_no_public_function_of_the_package_has_a_gap():
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert [gap for path in files for gap in gaps(path)] == []


def test_docstrings_do_not_only_point_elsewhere():
    """Leave out one that says nothing but where to look."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in files if '"""See :meth:' in path.read_text()] == []


@pytest.mark.parametrize(
    ("before", "after", "gap"),
    [
        ("", "", None),
        ("        height: in pixels.\n", "", None),
        ("        height: in pixels.\n", "        depth: in pixels.\n", "area: no argument depth"),
        ("Return the area", "The area", "area: what it returns"),
        ("        RuleError: it is empty.\n", "        ValueError: it is empty.\n", None),
        ('    """Return', '    """See :meth:`other`. Return', None),
        ('    """Return', '    f"""Return', "area: a docstring"),
        ("def area", "def _area", None),
        ("def area(", "def fuse(depth: int, ", "fuse: argument depth"),
    ],
)
def test_the_checker_finds_what_is_missing(tmp_path, before, after, gap):
    path = tmp_path / "passes.fuse.py"
    path.write_text(COMPLETE.replace(before, after, 1))
    found = gaps(path)
    assert (found == []) if gap is None else (len(found) == 1 and gap in found[0])


def test_public_functions_say_their_errors(tmp_path):
    path = tmp_path / "passes.fuse.py"
    path.write_text(COMPLETE.replace("area(", "fuse(").replace("RuleError: it", "ValueError: it"))
    assert [gap.rpartition(" ")[2] for gap in gaps(path)] == ["RuleError"]
