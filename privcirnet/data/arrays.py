"""Files of NumPy, each an array whose rows are inputs of a network: images, signals, rows of a table."""

import io
import threading
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcirnet.data.picture import PreparesInputs
from privcirnet.data.pictures import File, Picture, Pictures
from privcirnet.errors import RuleError, first_line

SUFFIX = ".npy"
"""End of the name of a file of numpy.save."""


def is_array(source: str) -> bool:
    """Return whether a path or URL names an array."""
    return PurePosixPath(source).suffix.lower() == SUFFIX


class Arrays(Pictures):
    """The rows of an array in a file; a local one is not read as a whole.

    Args:
        source: a path, or a URL of fsspec, that :func:`is_array`.

    Raises:
        RuleError: nothing is there, or it is no array of numbers with rows.
    """

    def files(self) -> Iterator[File]:
        """Yield the rows, each by the file's name and its number."""
        (file,) = super().files()
        for row in range(len(self._array)):
            yield File(f"{file.path}[{row}]", file.size)

    def read(self, file: File, preparation: PreparesInputs) -> Picture:
        """Return a row as a network takes it, or why it cannot be one."""
        row = int(file.path.rpartition("[")[2].removesuffix("]"))
        try:
            return Picture(file.path, preparation.prepare(self._array[row : row + 1]).pixels)
        except RuleError as error:
            return Picture(file.path, None, str(error))

    @property
    def _array(self) -> NDArray[Any]:
        with self._lock:
            return self._loaded

    @cached_property
    def _lock(self) -> threading.Lock:
        return threading.Lock()

    @cached_property
    def _loaded(self) -> NDArray[Any]:
        """The array, checked."""
        rule, remedy = "images=FILE.npy must be an array of numbers with rows", "write it by numpy.save(FILE, array)"
        try:
            source = Path(self._root) if self._is_local else io.BytesIO(self._store.cat_file(self._root))
            array = np.load(source, mmap_mode="r" if self._is_local else None, allow_pickle=False)
        except Exception as error:  # a damaged file makes NumPy raise anything
            raise RuleError(rule, got=f"{self._root}: {first_line(error)}", remedy=remedy) from None
        if array.dtype.kind not in "fiub" or array.ndim < 2 or not len(array):
            raise RuleError(rule, got=f"{array.dtype} {array.shape} in {self._root}", remedy=remedy)
        return array
