"""Small networks, data and settings that tests of runs share."""

import copy
import dataclasses

import torch
from torch import Tensor, nn

from privcirnet.config import RecipeConfig
from privcirnet.data import ImageData
from privcirnet.nn.quantization_steps import learn_steps_
from privcirnet.nn.quantizers import Quantizer
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from privcirnet.train import checkpoint
from privcirnet.train.loop import fit
from privcirnet.train.record import EpochProgress

RECIPE = RecipeConfig(epochs=4, batch_size=16, learning_rate=0.02, label_smoothing=0.0, weight_decay=0.01)

SETTINGS = {"seed": 0, "recipe": dataclasses.asdict(RECIPE), "block_sizes": {"0": 2}}


def bars(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """A bright row or a bright column in noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator)
    images = torch.randint(6, (count, 1, 6, 6), generator=generator, dtype=torch.uint8)
    for image, label in zip(images, labels, strict=True):
        place = int(torch.randint(6, (), generator=generator))
        (image[0] if label else image[0].T)[place] = 15
    return images, labels


DATA = ImageData(*bars(100, 1), *bars(40, 2), log_step=-4, levels=15, classes=("column", "row"))


def small(seed: int = 0) -> nn.Module:
    """With everything that has state or chance in training: batch norm, dropout."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 8, (1, 6)), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(48, 2)]
    return nn.Sequential(*layers)


def quantized(seed: int = 0) -> nn.Module:
    """Rounds at random in training."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(128, 2))
    circulant_(model, {"3": 2})
    return quantize(fuse(model), DATA.real(DATA.train_images), DATA.log_step)


def learning(seed: int = 0) -> nn.Module:
    """Learns its steps too."""
    return learn_steps_(quantized(seed))


def log_steps(model: nn.Module) -> dict[str, int]:
    return {name: int(module.log_step) for name, module in model.named_modules() if isinstance(module, Quantizer)}


class Interrupted(Exception):
    pass


def without_times(history):
    return [{name: entry[name] for name in ("epoch", "loss", "top1", "learning_rate")} for entry in history]


def saved(folder) -> EpochProgress:
    found = []
    fit(small(), DATA, dataclasses.replace(RECIPE, epochs=1), 0, after_epoch=lambda p: found.append(copy.deepcopy(p)))
    checkpoint.save(folder, found[0], SETTINGS)
    return found[0]
