"""A program ready for inference: real images in, real logits out; its memory; and its mode, read from a folder.

:func:`infer` asks a server elsewhere, whatever the mode of its program is.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from privcirnet.artifact.program import read_ckks, read_measured, read_program, write_program
from privcirnet.artifact.records import InputSpec, inputs_to_dict
from privcirnet.artifact.summaries import TruncationTrial, plain
from privcirnet.errors import RuleError, listed
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers.integer import Values
from privcirnet.he.planning.profile import Profile
from privcirnet.he.program.operations import HEADINGS, Input, described
from privcirnet.he.program.program import Program
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.ring.modular import Residues
from privcirnet.runs.answers import PreparedStock, StepProgress, no_progress
from privcirnet.runs.arrays import integers_of
from privcirnet.runs.evaluation import Evaluation, Mode, never, run
from privcirnet.runs.interactive import Interactive, SharedParties
from privcirnet.runs.memory import WEIGHTS_GB, check_memory, weight_bytes
from privcirnet.runs.parties import Parties, RunOptions, parties
from privcirnet.runs.pictures import read_image
from privcirnet.runs.progress import ProgressBar, silent
from privcirnet.service.client import ServiceClient

if TYPE_CHECKING:
    from torch import Tensor


_Images = TypeVar("_Images", "Tensor", np.ndarray)


@dataclass(frozen=True, repr=False)
class CompiledProgram:
    """A network ready for encrypted inference, from :func:`privcirnet.compile` or :func:`privcirnet.load`. Call it.

    The first call encodes weights, makes keys and begins oblivious transfers. They stay in memory for later calls until
    :meth:`close`, or until the program is garbage-collected. Copies, pickled ones too, begin their own.

    Attributes:
        integer: integer program, which :class:`privcirnet.Server` takes.
        spectra: weight spectra by node, if they were read.
        profile: operation times that its plans were chosen by, if they are known.
        rehearsal: trial of random truncations when it was made, see :func:`privcirnet.runs.rehearsal.rehearse`; None
            if there is none.
        quantization: distance of the quantized network's logits from those before quantization, in words.
        inputs: form of its images, and its classes; None: not known.
        bar: function that opens progress bars of preparations.
    """

    integer: Program
    spectra: Mapping[str, Residues] = field(default_factory=dict[str, Residues], repr=False)
    profile: Profile | None = field(default=None, repr=False)
    rehearsal: TruncationTrial | None = None
    quantization: str = ""
    inputs: InputSpec | None = field(default=None, repr=False)
    bar: ProgressBar = field(default=silent, repr=False, compare=False)
    _parties: SharedParties = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parties", SharedParties(Interactive(self.integer, self.spectra)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the constructor's arguments: keys and shares belong to one program in one process."""
        return type(self), tuple(getattr(self, attribute.name) for attribute in fields(self) if attribute.init)

    @property
    def parameters(self) -> Parameters:
        """The parameters of the encryption."""
        return self.integer.parameters

    @property
    def bounds(self) -> str:
        """The kind of bounds on values: "measured" on images, or "proved" for every image."""
        return self.integer.bounds

    @property
    def image(self) -> tuple[int, int, int]:
        """The shape of an image, (C, H, W)."""
        return self.integer.nodes[0].shape

    @property
    def pixel_range(self) -> tuple[float, float]:
        """The least and largest value of a pixel; for channels with several steps, in the coarsest one."""
        return self._source.low * self._step, self._source.high * self._step

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes by label; numbers where nobody knows them."""
        return self.inputs.classes if self.inputs else tuple(map(str, range(self.integer.classes)))

    def preprocess(self, picture: str | Path | bytes) -> np.ndarray:
        """Return a picture as an image of the program, float32 (1, C, H, W).

        Args:
            picture: path or bytes of a file.

        Raises:
            RuleError: it is no picture, or nobody knows how the network reads pictures: it is not from
                :func:`privcirnet.network`.
        """
        if self.inputs is None:
            rule, remedy = "a program must say how it reads pictures", "compile a network of privcirnet.network"
            raise RuleError(rule, got="nothing", remedy=f"{remedy}, or prepare images in a program of your own")
        return read_image(self.inputs, picture)

    @property
    def _source(self) -> Input:
        source = self.integer.nodes[0].operation
        assert isinstance(source, Input)
        return source

    @property
    def _step(self) -> float:
        return 2.0 ** self.integer.nodes[0].log_step

    def __str__(self) -> str:
        """Return the program in one line, then the method of each layer, a line each."""
        rows = [HEADINGS, *described(self.integer.nodes)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        of, (low, high) = self.parameters, self.pixel_range
        layers, size = len(self.integer.layers), " x ".join(map(str, self.image))
        about = (
            f"{len(self.integer.nodes)} nodes, {layers} encrypted layers, {self.bounds} bounds; "
            f"n = {of.ring_degree}, log q = {of.log_q}, t of {of.plain_bits} bits; encoded weights of "
            f"{weight_bytes(self.integer) / 1e9:.2g} GB; images {size}, pixels from {low:g} to {high:g}"
            f"{f'; {self.rehearsal}' if self.rehearsal else ''}"
            f"{f'; {self.quantization}' if self.quantization else ''}"
        )
        table = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join([about, *table])

    __repr__ = __str__

    @property
    def doubtful(self) -> bool:
        """True if over a tenth of the rehearsed images had another class than the quantized network gave them."""
        return self.rehearsal is not None and self.rehearsal.differ > self.rehearsal.images / 10

    def measured(self) -> dict[str, object]:
        """Return the manifest's facts of how it was made, which :func:`load` reads again."""
        profile = self.profile and self.profile.to_dict()
        facts = {"profile": profile, "rehearsal": plain(self.rehearsal), "quantization": self.quantization}
        facts["inputs"] = self.inputs and inputs_to_dict(self.inputs)
        return {name: value for name, value in facts.items() if value}

    def __call__(
        self, images: _Images, *, check: bool = False, engine: str = "kernel", weights_gb: float = WEIGHTS_GB
    ) -> _Images:
        """Encrypt images, compute on them, decrypt: client and server exchange bytes within this process.

        Both parties stay for the next call with the same settings; other settings begin others in their place. Calls
        of several threads take turns.

        Args:
            images: real images, (N, C, H, W) or (N, F), in the program's range: a tensor or a NumPy array.
            check: whether every value of both parties is compared with the integer network's.
            engine: engine of both parties: "kernel", "tenseal" (slower), or "cleartext", which hides nothing.
            weights_gb: size of encoded weights that stay in memory, in 10^9 bytes; others are encoded for every image.

        Returns:
            logits, float32 (N, classes), or with answer="top1" 1 at the class and 0 elsewhere: a tensor on the CPU for
            a tensor, an array for an array.

        Warns:
            UserWarning: more than a tenth of the images that it was compiled with had another class than the quantized
                network gave them.

        Raises:
            RuleError: no images, or of another size or range, too little memory (:func:`privcirnet.check` predicts it),
                or a value that is not the integer network's.
            ImpossibleResultError: a result is wider than right ones are, and not to be used.
        """
        self._warn_if_doubtful()
        return self._answered(self._parties, images, RunOptions(engine, weights_gb), check)

    def session(
        self, prepare: int = 0, *, engine: str = "kernel", weights_gb: float = WEIGHTS_GB
    ) -> "InferenceSession":
        """Return a session beside the program's own, with some inferences prepared. ``with`` closes it.

        Args:
            prepare: number of inferences to prepare now: all encrypted work that needs no image.
            engine: engine, as for a call.
            weights_gb: size of encoded weights, as for a call; the session has its own.

        Warns:
            UserWarning: as a call does.

        Raises:
            RuleError: ``prepare`` is no number of images, the program cannot be prepared, or there is too little
                memory.
        """
        self._warn_if_doubtful()
        session = InferenceSession(self, RunOptions(engine, weights_gb))
        if prepare != 0:
            session.prepare(prepare)
        return session

    def close(self) -> None:
        """Free the encoded weights, and forget the keys and shares, whose memory is zeroed. A call begins anew."""
        self._parties.close()

    def _warn_if_doubtful(self) -> None:
        if self.doubtful:
            remedy = "compile with truncation='exact', or train longer"
            warnings.warn(f"{self.rehearsal}; {remedy}", stacklevel=3)

    def _answered(self, parties: SharedParties, images: _Images, how: RunOptions, check: bool) -> _Images:
        """Return the logits of images, see :meth:`__call__`."""
        integers = self.integers(images)
        check_memory(self.integer, how.weights_gb, how.engine)
        evaluation = parties.evaluate(integers, how, check)
        if check and (wrong := {i: nodes[0] for i, nodes in enumerate(evaluation.wrong) if nodes}):
            raise _wrong(self.integer, wrong)
        if refused := next((answer.refused for answer in evaluation.answers if answer.refused), None):
            raise refused
        logits = self.logits(evaluation.logits).astype(np.float32)
        if isinstance(images, np.ndarray):
            return logits
        from torch import from_numpy  # a client with arrays needs none

        return from_numpy(logits)

    def integers(self, images: Any) -> Values:
        """Return images for :class:`privcirnet.Client`: (N, C, H, W), int64.

        Args:
            images: real images (N, C, H, W), signals (N, C, L) or a table (N, F): a NumPy array or a tensor.
        """
        return integers_of(self.integer.pixels, images)

    def logits(self, values: Values) -> np.ndarray:
        """Return a client's results as real numbers: of the same shape, float64.

        Args:
            values: integers, (N, classes) or (classes, 1, 1).
        """
        return values * 2.0**self.integer.output.log_step

    def save(self, folder: str | Path, *, replace: bool = True, **about: Any) -> None:
        """Write the program's folder, which export.py, infer.py and serve.py use too.

        Args:
            replace: whether an older program there may be replaced.
            about: public facts for the manifest, such as ``classes``, plain data.

        Raises:
            RuleError: the folder must not be replaced or holds something else, or the disk is full.
        """
        write_program(Path(folder), self.integer, {**self.measured(), **about}, replace=replace)


class InferenceSession:
    """A session of encrypted inferences with shared encoded weights, keys and transfers. Call it; ``with`` closes it.

    From :meth:`CompiledProgram.session`. Images take prepared inferences while there are any. An image that fails drops
    those that are left, and the next one begins anew, as does a copy of the process (fork).

    Args:
        program: program to run.
        how: options: engine, and encoded weights in memory.

    Attributes:
        engine: engine of both parties.

    Raises:
        RuleError: there is too little memory.
    """

    def __init__(self, program: CompiledProgram, how: RunOptions) -> None:
        check_memory(program.integer, how.weights_gb, how.engine)
        self.engine, self._program, self._how = how.engine, program, how
        self._parties: SharedParties | None = SharedParties(Interactive(program.integer, program.spectra))

    def __call__(self, images: _Images, *, check: bool = False) -> _Images:
        """Return logits as :meth:`CompiledProgram.__call__` does.

        Args:
            images: real images, (N, C, H, W) or (N, F), in the program's range: a tensor or a NumPy array.
            check: whether every value of both parties is compared with the integer network's.

        Raises:
            RuleError: the session is closed, or as there.
            ImpossibleResultError: as there.
        """
        return self._program._answered(self._open, images, self._how, check)

    def prepare(self, count: int) -> None:
        """Prepare more inferences, with a progress bar: all encrypted work that needs no image.

        Args:
            count: number of images.

        Raises:
            RuleError: it is no number of images, the session is closed, or the program cannot be prepared.
        """
        if not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RuleError("prepare must be a whole number of images", got=repr(count), remedy="use 8")
        self._open.prepare(count, self._how, self._program.bar)

    def close(self) -> None:
        """Free the encoded weights, and forget the keys and shares, whose memory is zeroed. Nothing runs afterwards."""
        parties, self._parties = self._parties, None
        if parties is not None:
            parties.close()

    def __enter__(self) -> "InferenceSession":
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    @property
    def _open(self) -> SharedParties:
        if self._parties is None:
            raise RuleError("a session must be open", got="a closed one", remedy="begin another: program.session()")
        return self._parties

    @property
    def prepared(self) -> int:
        """The number of prepared inferences that are left."""
        return self._parties.prepared if self._parties else 0

    def __str__(self) -> str:
        """Return its engine, prepared inferences and traffic so far, in one line."""
        if self._parties is None:
            return f"session of engine {self.engine}, closed"
        sent = self._parties.sent
        about = f"{sent.bytes / 1e6:.2f} MB and {sent.rounds} rounds, with keys and preparation"
        return f"session of engine {self.engine}: {self.prepared} inferences prepared; {sent.images} images, {about}"

    __repr__ = __str__


def read_compiled(folder: Path, key: PublicKey | None = None) -> CompiledProgram:
    """Return a program of a folder; with a key, one that it signed.

    Raises:
        RuleError: missing, damaged, foreign, or not signed with the key.
    """
    return CompiledProgram(*read_program(folder, key), *read_measured(folder, key))


def _wrong(program: Program, first: Mapping[int, str]) -> RuleError:
    """Return the error of wrong nodes; ``first``: the first one by image."""
    again = "run it again: masks wrap with the probability that failure_bits allows"
    beyond = "an image is beyond the measured bounds if it fails again: compile with images like it, or train longer"
    remedy = f"{again}; {beyond if program.bounds == 'measured' else 'report it if it fails again'}"
    got = listed([f"another from {name} on for image {i}" for i, name in first.items()])
    return RuleError("every value must be the integer network's", got=got, remedy=remedy)


def read_mode(folder: Path, mode: str, key: PublicKey | None = None) -> Mode:
    """Return the program of a folder; with a key, one that it signed.

    Args:
        mode: "interactive" or "ckks".

    Raises:
        RuleError: missing, damaged, foreign, of the other mode, or not signed with the key.
    """
    if mode == "ckks":
        return _ckks(read_ckks(folder, key))
    compiled = read_compiled(folder, key)
    return Interactive(compiled.integer, compiled.spectra, compiled.profile)


def _ckks(program: Any = None) -> Mode:
    from privcirnet.runs.ckks import Ckks  # it loads the kernels

    return Ckks(program)


MODES: dict[str, Callable[[Any], Mode]] = {
    "interactive": Interactive,
    "ckks": lambda _: _ckks(),
}
"""Modes of a client alone, from its program's public description, by :attr:`PublicDescription.mode`."""


def infer(
    remote: ServiceClient,
    images: Sequence[Values] | Values,
    how: RunOptions | None = None,
    progress: StepProgress = no_progress,
    *,
    keep: bool = False,
    ends: Callable[[], bool] = never,
) -> Evaluation:
    """Return the evaluation of a server on images.

    Args:
        images: integers of the data set, (N, C, H, W).
        ends: function asked after each request: whether no more images are to follow.
        keep: whether prepared inferences that are left over will be found again; otherwise none is left over.

    Raises:
        RuleError: there is no image, or one that does not fit the program; the server refuses or is gone.
    """
    return run(
        MODES[remote.party.known.mode](remote.party.known),
        client_of(remote, how or RunOptions(), keep),
        images,
        progress,
        ends,
    )


def client_of(remote: ServiceClient, how: RunOptions, keep: bool = False) -> Parties:
    """Return a client whose server is elsewhere, ready for images; ``keep``: see :func:`infer`."""
    ahead = PreparedStock(how.prepare, remote.store, keep, remote.reopen, how.pause_s)
    arguments = remote.party, remote, None, remote.seconds, remote.bytes_keys, ahead, how
    return parties(*arguments, persist=remote.persist)
