"""LoLa's network for CIFAR-10, which runs without interaction; Falcon (2020) makes its largest layer circulant.

32 x 32 x 3: conv 8x8 stride 2, 83 maps of 14 x 14 (16268 values) -> square -> conv 6x6 stride 2, 163 maps of 5 x 5
(4075) -> square -> linear 10. The one for MNIST is in :mod:`one_convolution`.

Source: Brutzkus, Elisha, Gilad-Bachrach, Low Latency Privacy Preserving Inference (ICML 2019, arXiv 1812.10659); Lou et
al., Falcon (NeurIPS 2020), Tables 6 and 9. The network is the one of the papers; LoLa's public code has a second
convolution of 10 x 10 with 112 maps instead. (Falcon's Table 9 prints f^2 = 25 for it; a kernel of 5 x 5 would have the
same 4075 outputs.) Images are padded by one on every side.
"""

from torch import Tensor, nn

from privcirnet.models.activation import activation as make_activation
from privcirnet.models.registry import register


class LolaCifar(nn.Module):
    """Two convolutions and a linear layer, for 32 x 32 images.

    Args:
        activation: see `privcirnet.models.activation`.

    Raises:
        RuleError: the activation is unknown.
    """

    def __init__(self, num_classes: int = 10, in_chans: int = 3, activation: str = "square") -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, 83, 8, stride=2, padding=1)
        self.act1 = make_activation(activation, 83)
        self.conv2 = nn.Conv2d(83, 163, 6, stride=2)
        self.act2 = make_activation(activation, 163)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(163 * 5 * 5, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images: (N, num_classes); ``x``: (N, in_chans, 32, 32)."""
        x = self.act2(self.conv2(self.act1(self.conv1(x))))
        return self.fc(self.flatten(x))


lola_cifar = register("lola_cifar", LolaCifar)
