from pathlib import Path

from privcirnet.compiled.jit import forget_stale


def test_machine_code_is_forgotten_when_any_source_changes(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "a.py").write_text("one")
    codes = [tmp_path / "__pycache__" / name for name in ("a.f-1.py311.nbi", "a.f-1.py311.1.nbc")]

    def kept() -> bool:
        for code in codes:
            code.write_bytes(b"code")
        forget_stale(tmp_path)
        assert len({code.exists() for code in codes}) == 1
        return codes[0].exists()

    assert not kept(), "nobody knows what it was compiled from"
    assert kept()
    (tmp_path / "b.py").write_text("two")
    assert not kept()
    assert kept()
    (tmp_path / "b.py").write_text("three")
    assert not kept()
    assert (tmp_path / "a.py").exists()
