"""The common structure of the field's small MNIST networks: a convolution and two linear layers."""

from torch import Tensor, nn

from privcirnet.models.activation import activation as make_activation


class OneConvolution(nn.Module):
    """Convolution -> activation -> linear -> activation -> linear.

    Args:
        conv: the convolution.
        numbers: count of values that it computes for an image.
        hidden: channels between the linear layers.
        num_classes: number of logits.
        activation: see `privcirnet.models.activation`.

    Raises:
        RuleError: the activation is unknown.
    """

    def __init__(self, conv: nn.Conv2d, numbers: int, hidden: int, num_classes: int, activation: str) -> None:
        super().__init__()
        self.conv = conv
        self.act1 = make_activation(activation, conv.out_channels)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(numbers, hidden)
        self.act2 = make_activation(activation, hidden, channels_last=True)
        self.fc2 = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images.

        Args:
            x: (N, in_chans, H, W).

        Returns:
            (N, num_classes).
        """
        x = self.flatten(self.act1(self.conv(x)))
        return self.fc2(self.act2(self.fc1(x)))
