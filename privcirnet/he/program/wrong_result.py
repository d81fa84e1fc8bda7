"""The error of a result that no right inference has."""

import numpy as np

from privcirnet.errors import RuleError


class ImpossibleResultError(RuleError):
    """A result, or a value on the way to it, that no right inference has."""

    def __init__(self, rule: str, *, got: object, remedy: str, values: np.ndarray | None = None) -> None:
        super().__init__(rule, got=got, remedy=remedy)
        self.values: np.ndarray = np.zeros(0, dtype=np.int64) if values is None else values
