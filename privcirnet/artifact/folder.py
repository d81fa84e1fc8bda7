"""Folders of programs: a manifest with the checksums of all files, and a signature.

Reading checks format, version, checksums and names before anything in a file is used.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from privcirnet.artifact.records import check_format, read_json, write_json
from privcirnet.errors import RuleError
from privcirnet.he.program import signature
from privcirnet.he.program.signature import PrivateKey, PublicKey
from privcirnet.he.system.atomic import replacing_folder

MANIFEST, SIGNATURE = "manifest.json", "signature.json"
INTERACTIVE, CKKS = "privcirnet-program", "privcirnet-ckks-program"
"""Formats of programs."""
_MODES = {INTERACTIVE: "interactive", CKKS: "ckks"}
REMEDY = "export it again with export.py"


def program_folder(path: str) -> str:
    """Return the folder of a program: a folder itself, or ``program`` in it, where export.py puts it."""
    inner = Path(path) / "program"
    return str(inner) if (inner / MANIFEST).is_file() and not (Path(path) / MANIFEST).is_file() else path


@contextmanager
def replacing_program(folder: Path, *, replace: bool = True) -> Iterator[Path]:
    """Open a draft that becomes a program's folder if the block succeeds.

    Args:
        replace: whether a program there may be replaced.

    Yields:
        The path of the draft, an empty folder.
    """
    if folder.exists() and not (replace and format_of(folder) in _MODES):
        rule, remedy = "the program's folder must be new or hold a program", "choose another out= folder"
        raise RuleError(rule, got=folder, remedy=remedy)
    with replacing_folder(folder) as draft:
        yield draft


def finish_folder(
    draft: Path,
    about: Mapping[str, Any],
    written: Sequence[str],
    description: Mapping[str, Any],
    key: PrivateKey | None = None,
) -> None:
    """Write the manifest, with the checksums of the files, and the signatures.

    Args:
        key: key that signs the program; None for a program without a signature.
    """
    facts = json.loads(json.dumps(dict(about)))
    checksums = {MANIFEST: _sha256_of_facts(facts)} | {name: _sha256((draft / name).read_bytes()) for name in written}
    write_json(draft / MANIFEST, {**facts, "checksums": checksums})
    if key is not None:
        signed = signature.sign_folder(key, (draft / MANIFEST).read_bytes())
        described = signature.sign_description(key, description)
        head = {"format": "privcirnet-signature", "version": 1}
        write_json(draft / SIGNATURE, {**head, "folder": signed.hex(), "description": described.hex()})


def read_signature(folder: Path) -> tuple[bytes, bytes]:
    """Return the signatures of a program's folder and of its public description, which its server's greeting repeats.

    Returns:
        both of them; empty ones for a program without a signature.
    """
    if not (path := Path(folder) / SIGNATURE).is_file():
        return b"", b""
    data = read_json(path, "a signature", REMEDY)
    check_format(data, "privcirnet-signature", path, (1,))
    try:
        return bytes.fromhex(data["folder"]), bytes.fromhex(data["description"])
    except (KeyError, TypeError, ValueError) as error:
        rule = "a signature's file must hold two signatures in hexadecimal"
        raise RuleError(rule, got=f"{path}: {error!r}", remedy="export it again") from None


def read_manifest(folder: Path, key: PublicKey | None, name: str, versions: Sequence[int]) -> dict[str, Any]:
    """Return a program's manifest, with its checksums.

    Args:
        key: key that must have signed it; None for any program.
        name: name of the format that it must have.
    """
    data = read_json(Path(folder) / MANIFEST, "a program's manifest", REMEDY)
    if key is not None:
        signed = (Path(folder) / MANIFEST).read_bytes()
        signature.check_folder(key, signed, read_signature(folder)[0])
        data = json.loads(signed)
    mode, expected_mode = _MODES.get(str(data.get("format"))), _MODES[name]
    if mode and mode != expected_mode:
        rule, remedy = (
            f"this reads programs of mode={expected_mode}",
            f"give mode={mode}, or export it with mode={expected_mode}",
        )
        raise RuleError(rule, got=f"{folder} of mode={mode}", remedy=remedy)
    check_format(data, name, folder, versions)
    return data


def checked_files(
    folder: Path, data: dict[str, Any], needed: Sequence[str], optional: re.Pattern[str] | None = None
) -> dict[str, bytes]:
    """Return the bytes of a program's files, all checked against the manifest.

    Args:
        optional: names of further files, which are only checked.
    """
    folder, checksums = Path(folder), data.pop("checksums", None)
    required = {MANIFEST, *needed}
    if not isinstance(checksums, dict) or not required <= checksums.keys():
        raise RuleError("a program must list its files' checksums", got=folder, remedy=REMEDY)
    contents: dict[str, bytes] = {}
    for name, checksum in checksums.items():
        if name not in required and not (optional and optional.fullmatch(name)):
            raise RuleError("a program's files must have known names", got=f"{folder}: {name!r:.80}", remedy=REMEDY)
        path = folder / name
        read = path.read_bytes() if name != MANIFEST and path.is_file() else None
        actual = _sha256_of_facts(data) if name == MANIFEST else "no file" if read is None else _sha256(read)
        if actual != checksum:
            raise RuleError("a program's files must match their checksums", got=path, remedy=REMEDY)
        if name in needed and read is not None:
            contents[name] = read
    return contents


def format_of(folder: Path) -> str:
    """Return the format that a folder's manifest names; "" if there is none."""
    try:
        return str(read_json(Path(folder) / MANIFEST, "a manifest", "").get("format"))
    except RuleError:
        return ""


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sha256_of_facts(facts: Mapping[str, Any]) -> str:
    """Return the checksum of a manifest without its checksums, whatever its white space and order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
