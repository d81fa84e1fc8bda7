"""The runs of one chain, read from disk and checked, and the two tables that every view of them shows."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcirnet.artifact.summaries import AuditedInference, ExportSummary, LayerRow, Search, Training, read_record
from privcirnet.errors import RuleError

RECORDS: dict[str, Any] = {
    "train": Training,
    "search": Search,
    "finetune": Training,
    "qat": Training,
    "export": ExportSummary,
    "infer": AuditedInference,
}
"""The stages in the order of the chain; each is also the name of its run directory."""

REHEARSAL = "infer_rehearsal"
"""Run directory of an inference in clear."""

OPTIONAL: dict[str, type] = {"replace": Training}
"""Optional stages of a chain."""

STAGES = ("train", "search", "finetune", "replace", "qat", "export", "infer")
"""All stages in order."""

_TRAINING = ("train", "finetune", "replace", "qat")
COMMANDS = {name: f"train.py recipe={name}" for name in _TRAINING[1:]}
"""Command of a stage where it is not just ``<stage>.py``."""


@dataclass(frozen=True)
class Runs:
    """A finished chain: one record per stage, and the encrypted images, uint8 (N, H, W) or (N, H, W, 3).

    A chain of CKKS has no ``qat``; it, or one of a dense network, may have no ``search`` and no ``finetune``.
    ``repeated`` are stages that come more than once, as ``replace_more``, in the order in which they were finished.
    """

    root: Path
    train: Training
    search: Search | None
    finetune: Training | None
    qat: Training | None
    export: ExportSummary
    infer: AuditedInference
    images: NDArray[np.uint8]
    version: str
    finished: datetime
    replace: Training | None = None
    repeated: tuple[tuple[str, Training], ...] = ()

    def of_stage(self, name: str) -> list[tuple[str, Any]]:
        """Return the records of a stage by the names of their folders, first its own, then those repeated."""
        records = [(name, record)] if (record := getattr(self, name)) else []
        return records + [(folder, record) for folder, record in self.repeated if _stage(folder) == name]

    @property
    def page_path(self) -> Path:
        """Path of the HTML report of these runs."""
        return self.root / "report.html"


@dataclass(frozen=True)
class LadderStep:
    """One step of the accuracy ladder: ``top1`` in percent, ``interval`` in percent where few images were used."""

    name: str
    top1: float
    images: str
    parameters: int | None = None
    interval: tuple[float, float] | None = None


def load_runs(root: Path) -> Runs:
    """Read and check the run directories of a chain.

    Returns:
        The runs.

    Raises:
        RuleError: a directory, its ``summary.json`` or ``infer/images.npz`` (a rehearsal's, if there is no encrypted
            run) is missing or malformed.
    """
    records: dict[str, Any] = dict.fromkeys(("search", "finetune", "qat"))
    folders = {stage: stage for stage in RECORDS} | {"infer": _inference(root)}
    records |= {stage: _load_summary(root, folders[stage]) for stage in RECORDS if not _left_out(root, stage)}
    records |= {stage: _load_summary(root, stage) for stage in OPTIONAL if (root / stage / "summary.json").is_file()}
    images = _load_images(root / folders["infer"], len(records["infer"].predictions))
    finished = datetime.fromtimestamp((root / folders["infer"] / "summary.json").stat().st_mtime)
    more = [path for path in root.glob("*_*/summary.json") if _stage(path.parent.name) in _TRAINING]
    names = [path.parent.name for path in sorted(more, key=lambda path: path.stat().st_mtime)]
    repeated = tuple((name, _load_summary(root, name)) for name in names)
    return Runs(root=root, **records, repeated=repeated, images=images, version=_version(), finished=finished)


def ladder_steps(runs: Runs) -> tuple[list[LadderStep], list[LadderStep]]:
    """Return the accuracy ladder on the whole test set, and on the encrypted images."""
    eight = "block-circulant, 8-bit" if runs.finetune and not runs.replace else "8-bit"
    replaced = "exact activations" if runs.replace and runs.replace.activation == "own" else "polynomial activations"
    names = {"train": "dense", "finetune": "block-circulant", "replace": replaced, "qat": eight}
    whole = [
        LadderStep(name if folder == stage else folder, record.top1, "whole test set", record.parameters)
        for stage, name in names.items()
        for folder, record in runs.of_stage(stage)
    ]
    infer, clear = runs.infer, "integer, in clear" if runs.infer.audit.mode == "integer" else "in clear"
    some = {"float": infer.top1_float, clear: infer.audit.top1_clear, infer.done: infer.top1_encrypted}
    place = f"{infer.images} {infer.done} images"
    return whole, [
        LadderStep(name, top1, place, interval=wilson_interval(top1, infer.images))
        for name, top1 in some.items()
        if top1 is not None
    ]


def wilson_interval(percent: float, count: int) -> tuple[float, float] | None:
    """Return Wilson's 95 % interval of a share, in percent; None without images.

    >>> [round(x, 1) for x in wilson_interval(50.0, 10)]
    [23.7, 76.3]
    """
    if count < 1:
        return None
    z, share = 1.96, percent / 100
    centre = share + z * z / (2 * count)
    reach = z * math.sqrt(max(share * (1 - share), 0.0) / count + z * z / (4 * count * count))
    scale = 100 / (1 + z * z / count)
    return max(0.0, (centre - reach) * scale), min(100.0, (centre + reach) * scale)


def total(layers: Sequence[LayerRow]) -> LayerRow:
    """Return the sum of the layers, field by field; a field that no layer has stays None."""

    def add(name: str) -> Any:
        values = [v for layer in layers if (v := getattr(layer, name)) is not None]
        return sum(values) if values else None

    text = {"name", "kind", "encoding", "block_size", "level", "precision_bits"}
    return LayerRow(name="total", **{f.name: add(f.name) for f in fields(LayerRow) if f.name not in text})


def _stage(folder: str) -> str:
    """Return the stage whose run directory a folder is: ``replace_more`` is one more ``replace``."""
    return folder.partition("_")[0]


def _remedy(root: Path, stage: str) -> str:
    stage = _stage(stage)
    return f"run `python {COMMANDS.get(stage, f'{stage}.py')} root={root}`"


def _left_out(root: Path, stage: str) -> bool:
    """Return whether a chain has no such stage: one of CKKS has no quantized one, a dense one no plan."""
    decidable = (root / "export" / "summary.json").is_file() or stage == "qat"
    if (root / stage).is_dir() or stage not in ("search", "finetune", "qat") or not decidable:
        return False
    dense = stage != "qat" and not any((root / name).is_dir() for name in ("search", "finetune"))
    return dense or _load_summary(root, "export").mode == "ckks"


def _load_summary(root: Path, stage: str) -> Any:
    path = root / stage / "summary.json"
    remedy = _remedy(root, stage)
    if not path.parent.is_dir():
        raise RuleError("the report needs the run directory of every stage", got=f"no {path.parent}", remedy=remedy)
    if not path.is_file():
        raise RuleError("a finished run leaves a summary.json", got=f"no {path}", remedy=remedy)
    try:
        return read_record((RECORDS | OPTIONAL)[_stage(stage)], path)
    except (ValueError, OSError) as error:
        raise RuleError(
            f"the summary of {stage!r} must be well-formed", got=f"{path}: {error}", remedy=remedy
        ) from error


def _inference(root: Path) -> str:
    """Return the name of the encrypted run; of its rehearsal where there is no other."""
    return REHEARSAL if (root / REHEARSAL).is_dir() and not (root / "infer").is_dir() else "infer"


def _load_images(folder: Path, count: int) -> NDArray[np.uint8]:
    path = folder / "images.npz"
    rule, remedy = "infer/images.npz must hold the encrypted images", _remedy(folder.parent, "infer")
    if not path.is_file():
        raise RuleError(rule, got=f"no {path}", remedy=remedy)
    try:
        with np.load(path, allow_pickle=False) as archive:
            images = archive["images"]
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise RuleError(rule, got=f"{path}: {error}", remedy=remedy) from error
    grey_or_colour = images.ndim == 3 or (images.ndim == 4 and images.shape[3] == 3)
    if images.dtype != np.uint8 or not grey_or_colour or len(images) != count:
        mismatch = (
            f"{path}: {images.dtype} {images.shape} for {count} predictions, wanted uint8 (N, H, W) or (N, H, W, 3)"
        )
        raise RuleError(rule, got=mismatch, remedy=remedy)
    return images


def _version() -> str:
    try:
        return metadata.version("privcirnet")
    except metadata.PackageNotFoundError:
        return "source checkout (not installed)"
