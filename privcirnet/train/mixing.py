"""Mixed images with mixed labels: timm's mixup and cutmix, drawn from a generator that a resumed run continues."""

# timm re-exports names without saying so to type checkers.
# pyright: reportPrivateImportUsage=false

import numpy as np
import torch
from torch import Tensor


class Mixer:
    """Mixup (Zhang et al., 2018) or cutmix (Yun et al., 2019), one of them by chance for each batch.

    Args:
        mixup: alpha of mixup's beta distribution; 0 for none.
        cutmix: alpha of cutmix's; 0 for none.
    """

    def __init__(self, mixup: float, cutmix: float, classes: int) -> None:
        from timm.data import Mixup

        self._mixup = Mixup(mixup, cutmix, label_smoothing=0.0, num_classes=classes)

    def __call__(self, images: Tensor, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Mix a batch with itself in reverse order; of an odd batch the last image stays as it is.

        Args:
            images: real, (N, C, H, W).
            labels: int64 (N,).

        Returns:
            (images, probabilities of the classes (N, classes)).
        """
        images = images.clone()  # a user's own tensors may be these
        targets = torch.nn.functional.one_hot(labels, self._mixup.num_classes).to(images.dtype)
        even = len(images) // 2 * 2
        np.random.seed(int(torch.randint(2**31, (), generator=generator)))  # timm draws from NumPy's own state
        if even:
            mixed, mixed_targets = self._mixup(images[:even], labels[:even])
            images[:even], targets[:even] = mixed, mixed_targets.to(targets.dtype)
        return images, targets
