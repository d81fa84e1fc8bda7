"""A program together with what its integers mean: real images in, real logits out."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from privcirnet.artifact import read_measured, read_program, write_program
from privcirnet.errors import RuleError, first_line, listed
from privcirnet.he.layers.integer import Values
from privcirnet.he.planning.profile import Profile
from privcirnet.he.program.description import HEADINGS, described
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Program
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.ring.modular import Residues
from privcirnet.he.schemes.bfv.parameters import Parameters
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.memory import WEIGHTS_GB, check_memory, weight_bytes
from privcirnet.runs.parties import How
from privcirnet.runs.rehearsal import in_words

if TYPE_CHECKING:
    from torch import Tensor

_Images = TypeVar("_Images", "Tensor", np.ndarray)


@dataclass(frozen=True, repr=False)
class CompiledProgram:
    """A network ready for encrypted inference, from :func:`privcirnet.compile` or :func:`privcirnet.load`. Call it.

    Attributes:
        integer: the integer program, which :class:`privcirnet.Server` takes.
        spectra: its weight spectra by node, if they were read.
        profile: operation times that its plans were chosen by, if they are known.
        rehearsal: how far the logits of some images were from the quantized network's when it was made, see
            :func:`privcirnet.runs.rehearsal.rehearsed`; empty if that is not known.
        quantization: how far the quantized network's are from those before it was quantized, in words.
    """

    integer: Program
    spectra: Mapping[str, Residues] = field(default_factory=dict[str, Residues], repr=False)
    profile: Profile | None = field(default=None, repr=False)
    rehearsal: Mapping[str, float] = field(default_factory=dict[str, float])
    quantization: str = ""

    @property
    def parameters(self) -> Parameters:
        """Of the encryption."""
        return self.integer.parameters

    @property
    def bounds(self) -> str:
        """Of the values: "measured" on images, or "proved" for every image."""
        return self.integer.bounds

    @property
    def image(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        return self.integer.nodes[0].shape

    @property
    def pixel_range(self) -> tuple[float, float]:
        """Least and largest value of a pixel, of channels with several steps in the coarsest one."""
        return self._source.low * self._step, self._source.high * self._step

    @property
    def _source(self) -> Input:
        source = self.integer.nodes[0].operation
        assert isinstance(source, Input)
        return source

    @property
    def _step(self) -> float:
        return 2.0 ** self.integer.nodes[0].log_step

    def __str__(self) -> str:
        """Return what it is in one line, then how each layer is computed, a line each."""
        rows = [HEADINGS, *described(self.integer.nodes)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        of, (low, high) = self.parameters, self.pixel_range
        layers, size = len(self.integer.layers), " x ".join(map(str, self.image))
        about = (
            f"{len(self.integer.nodes)} nodes, {layers} encrypted layers, {self.bounds} bounds; "
            f"n = {of.ring_degree}, log q = {of.log_q}, t of {of.plain_bits} bits; encoded weights of "
            f"{weight_bytes(self.integer) / 1e9:.2g} GB; images {size} in [{low:g}, {high:g}]"
            f"{f'; {in_words(self.rehearsal)}' if self.rehearsal else ''}"
            f"{f'; {self.quantization}' if self.quantization else ''}"
        )
        table = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join([about, *table])

    __repr__ = __str__

    @property
    def doubtful(self) -> bool:
        """Whether more than a tenth of the images that were rehearsed had another class than the quantized network."""
        return bool(self.rehearsal) and self.rehearsal["differ"] > self.rehearsal["images"] / 10

    def measured(self) -> dict[str, object]:
        """Return what the manifest says of how it was made, as :func:`load` reads it again."""
        profile = self.profile and self.profile.to_dict()
        known = {"profile": profile, "rehearsal": dict(self.rehearsal), "quantization": self.quantization}
        return {name: value for name, value in known.items() if value}

    def __call__(
        self, images: _Images, *, check: bool = False, engine: str = "kernel", weights_gb: float = WEIGHTS_GB
    ) -> _Images:
        """Encrypt images, compute on them, decrypt: client and server exchange bytes within this process.

        Args:
            images: real, (N, C, H, W) or (N, F), in the program's range: a tensor or a NumPy array.
            engine: of both parties: "kernel", "tenseal" (slower), or "cleartext" for a rehearsal that hides nothing.
            weights_gb: of encoded weights that the server keeps, in 10^9 bytes; others are encoded for every image.

        Returns:
            logits, float32 (N, classes), or with answer="top1" 1 at the class and 0 elsewhere: a tensor on the CPU for
            a tensor, an array for an array.

        Warns:
            UserWarning: of the images that it was compiled with, more than a tenth had another class than the quantized
                network gave them.

        Raises:
            RuleError: no images, or of another size or range, too little memory (:func:`privcirnet.check` predicts it),
                or a value that is not the integer network's.
            WrongResult: a result is wider than right ones are, and not to be used.
        """
        integers = self.integers(images)
        check_memory(self.integer, weights_gb, engine)
        if self.doubtful:
            warnings.warn(f"{in_words(self.rehearsal)}; compile with guard_bits=, or train longer", stacklevel=2)
        found = evaluate(Interactive(self.integer, self.spectra), integers, How(engine, weights_gb, audited=check))
        if check and (wrong := {i: nodes[0] for i, nodes in enumerate(found.wrong) if nodes}):
            raise _wrong(self.integer, wrong)
        if refused := next((answer.refused for answer in found.answers if answer.refused), None):
            raise refused
        logits = self.logits(found.logits).astype(np.float32)
        if isinstance(images, np.ndarray):
            return logits
        from torch import from_numpy  # a client with arrays needs none

        return from_numpy(logits)

    def integers(self, images: Any) -> Values:
        """Return images as :class:`privcirnet.Client` takes them: (N, C, H, W), int64.

        Args:
            images: real, (N, C, H, W), or a table (N, F): a NumPy array or a tensor.
        """
        try:
            array = np.asarray(images.detach().cpu() if hasattr(images, "detach") else images, dtype=np.float64)
        except (TypeError, ValueError) as error:
            got, remedy = first_line(error), "give a NumPy array or a tensor"
            raise RuleError("images must be real numbers (N, C, H, W)", got=got, remedy=remedy) from None
        if array.ndim == 2:
            array = array[..., None, None]
        if array.ndim != 4 or not len(array) or array.shape[1:] != self.image:
            got, remedy = f"shape {array.shape}", "resize them, or compile with images of this size"
            raise RuleError(
                f"images must be (N, {', '.join(map(str, self.image))}), as compiled", got=got, remedy=remedy
            )
        if self._source.exponents:
            array = np.ldexp(array, -np.array(self._source.exponents).reshape(-1, 1, 1))
        (low, high), least, most = self.pixel_range, array.min(), array.max()
        half = self._step / 2
        if not (low - half <= least and most < high + half):
            remedy = "normalize them as those that it was compiled with, or clamp them"
            units = ", each channel in its step" if self._source.exponents else ""
            rule = f"pixels must be in [{low:g}, {high:g}]{units}, as compiled"
            raise RuleError(rule, got=f"[{least:g}, {most:g}]", remedy=remedy)
        return np.floor(array / self._step + 0.5).astype(np.int64)

    def logits(self, values: Values) -> np.ndarray:
        """Return a client's results as real numbers: of the same shape, float64.

        Args:
            values: integers, (N, classes) or (classes, 1, 1).
        """
        return values * 2.0**self.integer.output.log_step

    def save(self, folder: str | Path, *, replace: bool = True, **about: Any) -> None:
        """Write the program's folder, which export.py, infer.py and serve.py know too.

        Args:
            replace: whether an older program there may be replaced.
            about: public facts for the manifest, as ``classes``, plain data.

        Raises:
            RuleError: the folder must not be replaced or holds something else, or the disk is full.
        """
        write_program(Path(folder), self.integer, {**self.measured(), **about}, replace=replace)


def load(folder: str | Path) -> CompiledProgram:
    """Return a program that :meth:`CompiledProgram.save` or export.py wrote.

    Args:
        folder: where it is.

    Raises:
        RuleError: missing, damaged or foreign.
    """
    return read_compiled(Path(folder))


def read_compiled(folder: Path, key: PublicKey | None = None) -> CompiledProgram:
    """Return a program of a folder, as :func:`load` does; with a key, one that it signed."""
    return CompiledProgram(*read_program(folder, key), *read_measured(folder))


def _wrong(program: Program, first: Mapping[int, str]) -> RuleError:
    """The first wrong node by image."""
    again = "run it again: masks wrap with the probability that failure_bits allows"
    beyond = "an image is beyond the measured bounds if it fails again: compile with images like it, or train longer"
    remedy = f"{again}; {beyond if program.bounds == 'measured' else 'report it if it fails again'}"
    got = listed([f"another from {name} on for image {i}" for i, name in first.items()])
    return RuleError("every value must be the integer network's", got=got, remedy=remedy)
