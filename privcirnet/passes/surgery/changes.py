"""Reports of the replacements in a network."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Replacement:
    """One replacement.

    Attributes:
        path: path of the module, or name of the operation in the traced network.
        after: class or description of the replacement; "" if it is gone.
        effect: usual cost; "" if the network computes the same as before.
    """

    path: str
    before: str
    after: str
    effect: str = ""

    def __str__(self) -> str:
        """Return the change as one line."""
        line = f"{self.path}: {self.before} -> {self.after or 'nothing'}"
        return f"{line} ({self.effect})" if self.effect else line


TRAIN = "values differ: fine-tune, best with the original network as teacher"
"""Effect of a replacement that needs training."""
ONE_MORE = "one more encrypted layer"
"""Effect of a new layer; the network computes the same."""
TWO_MORE = "two more encrypted layers"
"""Effect of two new layers."""
WITHOUT_SOFTMAX = (
    "no softmax at the end: the class of the logits is the same, and softmax of a decrypted answer gives probabilities"
)
"""Remedy for the last operation of many classifiers."""
