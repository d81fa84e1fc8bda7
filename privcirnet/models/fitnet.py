"""FitNets for CIFAR-10: narrow and deep networks of 3 x 3 convolutions in three stages, a classifier behind them.

| number | maps of the stages | convolutions |
|---|---|---|
| 1 | 16, 16, 16 - 32, 32, 32 - 48, 48, 64 | 9 |
| 2 | 16, 32, 32 - 48, 64, 80 - 96, 96, 128 | 9 |
| 3 | 32, 48, 64, 64 - 80, 80, 80, 80 - 128, 128, 128 | 11 |
| 4 | 32, 32, 32, 48, 48 - 80 six times - 128 six times | 17 |

XONN's BC2 to BC5, on which ENSEI measures whole networks (Table 5), have as many convolutions and are taken to be
these.

Source: Romero et al., FitNets: Hints for Thin Deep Nets (ICLR 2015), appendix. Departures: an activation in place of
maxout, averages in place of maxima, batch norms.
"""

from torch import nn

from privcirnet.errors import RuleError
from privcirnet.models.registry import activation as make_activation
from privcirnet.models.registry import downsampled, register

STAGES: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((16, 16, 16), (32, 32, 32), (48, 48, 64)),
    2: ((16, 32, 32), (48, 64, 80), (96, 96, 128)),
    3: ((32, 48, 64, 64), (80, 80, 80, 80), (128, 128, 128)),
    4: ((32, 32, 32, 48, 48), (80,) * 6, (128,) * 6),
}
"""Number -> maps of each stage's convolutions."""


class FitNet(nn.Sequential):
    """Three stages of convolutions: averages in windows of 2 x 2 behind two of them, of the whole map behind the last.

    Args:
        image_size: side of the image, a multiple of 4.
        number: 1 to 4.
        activation: see `privcirnet.models.registry`.
    """

    def __init__(
        self, num_classes: int = 10, in_chans: int = 3, image_size: int = 32, number: int = 1, activation: str = "relu"
    ) -> None:
        super().__init__()
        if number not in STAGES:
            raise RuleError("number must be that of a FitNet, 1 to 4", got=number, remedy="use number=1")
        final_side = downsampled(image_size, 4)
        for stage, maps in enumerate(STAGES[number], 1):
            for index, channels in enumerate(maps, 1):
                name = f"{stage}_{index}"
                self.add_module(f"conv{name}", nn.Conv2d(in_chans, channels, 3, padding=1, bias=False))
                self.add_module(f"norm{name}", nn.BatchNorm2d(channels))
                self.add_module(f"act{name}", make_activation(activation, channels))
                in_chans = channels
            self.add_module(f"pool{stage}", nn.AvgPool2d(final_side if stage == len(STAGES[number]) else 2))
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(in_chans, num_classes)


fitnet = register("fitnet", FitNet)
