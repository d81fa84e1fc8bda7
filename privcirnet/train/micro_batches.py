"""Batches in parts, whose gradients are added: statistics of a network with AESPA are those of few images.

In a row of squares a few images have values far above the usual. They dominate the variance of a square, the more the
larger the batch: it is at most B H W times the usual. In training they crush all other images; in evaluation, by
running averages, nothing bounds them. MobileNetV2 with AESPA, trained on a GPU with batches of 500, went from 28 to
10 % while its loss fell. After 100 steps of the same 500 images 23 % of them were right with statistics over 500
images, and 56 % with those over four parts of 125.

Source: the ghost batches of Hoffer et al., "Train longer, generalize better" (NeurIPS 2017), which are for batch norms.
Cost: that of more and smaller steps, without more updates of the weights.
"""

from torch import Tensor, nn

from privcirnet.nn.activations import Aespa

MOST = 128
"""Images that an AESPA measures at once. One trained at 128 has 58 % with statistics over 128, 21 over 512."""


def micro_batch_size(model: nn.Module, batch_size: int) -> int:
    """Return how many images of a batch a network sees at once: all, unless it has an AESPA."""
    return min(batch_size, MOST) if any(isinstance(module, Aespa) for module in model.modules()) else batch_size


def in_parts(values: Tensor, size: int) -> tuple[Tensor, ...]:
    """Return a batch in parts of about the same size, none of which is a single image.

    Args:
        values: (N, ...).
        size: number of values in a part; one more where one would be alone.

    >>> import torch
    >>> [part.tolist() for part in in_parts(torch.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    return values.tensor_split(max(1, min(-(-(len(values) - 1) // size), len(values) // 2)))
