"""Results of many pictures: what is kept, continued and refused."""

import json
import os
import sys
from contextlib import closing
from dataclasses import asdict

import pytest

from privcirnet.artifact import results
from privcirnet.artifact.results import Logit, PictureResult, Results
from privcirnet.errors import RuleError

CAT = PictureResult(
    "/p/a.png", "v1", 3, "cat", [Logit(3, "cat", 1.5), Logit(0, "dog", 0.25)], 1.25, "", 0.5, 10, 20, True
)
BROKEN = PictureResult("/p/b.png", "v1", refused="not an image")


def written(path, *rows: PictureResult, source: str = "/p") -> dict[str, PictureResult]:
    with closing(Results(path, source)) as found:
        for row in rows:
            found.add(row)
        found.complete()
    with closing(Results(path, source)) as found:
        return found.rows


def test_rows_are_lines_that_the_next_run_reads(tmp_path):
    path = tmp_path / "deep" / "r.jsonl"
    assert written(path, CAT) == {CAT.path: CAT}
    assert written(path, BROKEN) == {CAT.path: CAT, BROKEN.path: BROKEN}
    assert [json.loads(line) for line in path.read_text().splitlines()] == [asdict(CAT), asdict(BROKEN)]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_row_is_in_the_file_at_once(tmp_path):
    """A run that is killed has written it."""
    with closing(Results(tmp_path / "r.jsonl", "/p")) as found:
        found.add(CAT)
        assert json.loads((tmp_path / "r.jsonl").read_text()) == asdict(CAT)


def test_the_disk_is_waited_for_now_and_then(tmp_path, monkeypatch):
    waits, now = [], [0.0]
    monkeypatch.setattr(results.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "fsync", waits.append)
    with closing(Results(tmp_path / "r.jsonl", "/p")) as found:
        for second in (0.1, 0.2, 1.3, 1.4):
            now[0] = second
            found.add(CAT)
        assert len(waits) == 1
    assert len(waits) == 2


@pytest.mark.parametrize("torn", [1, 40, -1])
def test_a_torn_last_line_is_cut(tmp_path, torn):
    path = tmp_path / "r.jsonl"
    written(path, CAT)
    whole = path.read_bytes()
    path.write_bytes(whole + json.dumps(asdict(BROKEN)).encode()[:torn])
    assert written(path) == {CAT.path: CAT}
    assert path.read_bytes() == whole
    assert written(path, BROKEN) == {CAT.path: CAT, BROKEN.path: BROKEN}


@pytest.mark.parametrize("line", ["no JSON", '{"path": 3, "version": "v1"}', '{"path": "/p/c.png"}', "[]"])
def test_another_damaged_line_is_refused_and_kept(tmp_path, line):
    path = tmp_path / "r.jsonl"
    path.write_text(f"{line}\n{json.dumps(asdict(CAT))}\n")
    before = path.read_bytes()
    with pytest.raises(
        RuleError, match=r"results must be whole lines of JSON, .* got line 1 of .*; give another results="
    ):
        Results(path, "/p")
    assert path.read_bytes() == before


def test_results_of_other_pictures_or_another_version(tmp_path):
    path = tmp_path / "r.jsonl"
    written(path, CAT)
    for source in ("/q", "/p/a", "s3://p"):
        with pytest.raises(
            RuleError, match=f"same images=: got .*with /p/a.png, not of {source}; give another results="
        ):
            Results(path, source)
    with (
        closing(Results(path, "/p")) as found,
        pytest.raises(RuleError, match=r"of version v1, and a program of .* v2"),
    ):
        found.check_version("v2")
    with closing(Results(path, "/p/a.png")) as found:
        found.check_version("v1")
    with closing(Results(tmp_path / "new.jsonl", "/p")) as found:
        found.check_version("v2")


def test_one_run_at_a_time(tmp_path):
    with closing(Results(tmp_path / "r.jsonl", "/p")), pytest.raises(RuleError, match="by one run at a time"):
        Results(tmp_path / "r.jsonl", "/p")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "r.jsonl").mkdir()
    with pytest.raises(RuleError, match="a file that can be written"):
        Results(tmp_path / "r.jsonl", "/p")


def test_a_full_disk(tmp_path, file_limit):
    with closing(Results(tmp_path / "r.jsonl", "/p")) as found:
        file_limit(100)
        with pytest.raises(RuleError, match="a disk must have room"):
            found.add(CAT)
    assert written(tmp_path / "r.jsonl") == {}


def test_parquet_is_made_of_the_lines(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(results, "_GROUP", 2)
    path, strange = tmp_path / "r.parquet", PictureResult("/p/\udcff.png", "v1", 1, "dog")
    written(path, CAT, BROKEN)
    assert written(path, strange).keys() == {CAT.path, BROKEN.path, strange.path}
    table = parquet.read_table(path)
    assert table.to_pylist() == [asdict(CAT), asdict(BROKEN), asdict(strange) | {"path": "/p/\\udcff.png"}]
    assert parquet.ParquetFile(path).num_row_groups == 2
    (tmp_path / "r.jsonl").unlink()
    with pytest.raises(RuleError, match="results in Parquet must have their lines beside them"):
        Results(path, "/p")


def test_parquet_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RuleError, match=r"results in Parquet need pyarrow: .*privcirnet\[parquet\]"):
        Results(tmp_path / "r.parquet", "/p")
    assert list(tmp_path.iterdir()) == []
