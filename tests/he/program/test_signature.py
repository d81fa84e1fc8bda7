"""Signing keys as files; what signatures are worth is in tests/attacks."""

import subprocess
from pathlib import Path

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.program import signature


def test_a_pair_of_keys(tmp_path: Path) -> None:
    public = signature.make_keys(tmp_path / "keys" / "model.pem")
    assert public == tmp_path / "keys" / "model.pem.pub"
    assert (tmp_path / "keys" / "model.pem").stat().st_mode & 0o777 == 0o600
    signed = signature.sign_folder(signature.read_private(tmp_path / "keys" / "model.pem"), b"manifest")
    assert len(signed) == signature.BYTES
    signature.check_folder(signature.read_public(public), b"manifest", signed)
    with pytest.raises(RuleError, match="got a signature that is not; export it again"):
        signature.check_folder(signature.read_public(public), b"other", signed)
    with pytest.raises(RuleError, match="got none; export it again"):
        signature.check_folder(signature.read_public(public), b"manifest", b"")


def test_a_description_is_signed_whatever_its_order(tmp_path: Path) -> None:
    public = signature.make_keys(tmp_path / "key")
    signed = signature.sign_description(signature.read_private(tmp_path / "key"), {"a": (1, 2), "b": "é"})
    signature.check_description(signature.read_public(public), {"b": "é", "a": [1, 2]}, signed)


def test_a_key_is_not_overwritten(tmp_path: Path) -> None:
    signature.make_keys(tmp_path / "key")
    before = (tmp_path / "key").read_bytes()
    with pytest.raises(RuleError, match=r"a file of its own: got .*key: File exists"):
        signature.make_keys(tmp_path / "key")
    assert (tmp_path / "key").read_bytes() == before


def test_files_that_are_no_keys(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key")
    public = signature.make_keys(tmp_path / "key")
    for read, wrong in (
        (signature.read_private, (tmp_path / "none", tmp_path / "text", public)),
        (signature.read_public, (tmp_path / "none", tmp_path / "text", tmp_path / "key")),
    ):
        for path in wrong:
            with pytest.raises(RuleError, match=r"key must be Ed25519's, in a PEM file: got"):
                read(path)
    assert signature.pinned("") is None


def test_keys_of_another_kind(tmp_path: Path) -> None:
    made = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "x25519", "-out", str(tmp_path / "x")], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("needs openssl")
    with pytest.raises(RuleError, match="a private key must be Ed25519's"):
        signature.read_private(tmp_path / "x")
