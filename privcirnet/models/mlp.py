"""The network of HomomorphicEncryption.org's benchmark of encrypted inference: three linear layers, on MNIST.

784 pixels -> linear 128 -> square -> linear 64 -> square -> linear 10.

Source: github.com/fhe-benchmarking/ml-inference, harness/mnist. It has ReLU; squares take its place here.
"""

from torch import Tensor, nn

from privcirnet.models.activation import activation as make_activation
from privcirnet.models.registry import register


class MnistMlp(nn.Module):
    """Three linear layers, for 28 x 28 images.

    Args:
        activation: see `privcirnet.models.activation`.

    Raises:
        RuleError: the activation is unknown.
    """

    def __init__(self, num_classes: int = 10, in_chans: int = 1, activation: str = "square") -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(in_chans * 28 * 28, 128)
        self.act1 = make_activation(activation, 128, channels_last=True)
        self.fc2 = nn.Linear(128, 64)
        self.act2 = make_activation(activation, 64, channels_last=True)
        self.fc3 = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images: (N, num_classes); ``x``: (N, in_chans, 28, 28)."""
        return self.fc3(self.act2(self.fc2(self.act1(self.fc1(self.flatten(x))))))


mnist_mlp = register("mnist_mlp", MnistMlp)
