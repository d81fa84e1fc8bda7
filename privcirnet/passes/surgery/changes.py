"""What was replaced in a network, as a report."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Replacement:
    """One replacement.

    Attributes:
        path: of the module, or the name of the operation in the traced network.
        after: what it is now; "" if it is gone.
        effect: what this usually costs; "" if the network computes the same as before.
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
"""The effect of a replacement that needs training."""
ONE_MORE = "one more encrypted layer"
"""The effect of a layer that was not there before; what the network computes is the same."""
TWO_MORE = "two more encrypted layers"
"""Likewise of two."""
WITHOUT_SOFTMAX = (
    "no softmax at the end: the class of the logits is the same, and softmax of a decrypted answer gives probabilities"
)
"""What to do with the last operation of many classifiers."""
