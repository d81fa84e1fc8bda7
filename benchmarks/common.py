"""Images and short fine-tuning for the benchmarks on trained networks."""

import argparse

from privcirnet.config import DataConfig, RecipeConfig
from privcirnet.data import ImageData, load_for


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that locate the images."""
    parser.add_argument("--data", default="cifar10", help="as data.name of train.py")
    parser.add_argument("--root", default="data", help="as data.root of train.py")
    parser.add_argument("--cache", default="auto", help="as data.cache of train.py")


def load(given: argparse.Namespace) -> ImageData:
    """Return the images that the arguments name."""
    return load_for(DataConfig(name=given.data, root=given.root, cache=given.cache))


def tuning(epochs: int, learning_rate: float) -> RecipeConfig:
    """Return a recipe for short fine-tuning, distilled from the dense network; the same for everything compared."""
    return RecipeConfig(
        epochs=epochs,
        batch_size=128,
        learning_rate=learning_rate,
        clip_gradient=1.0,
        crop=4,
        flip=True,
        channels_last=True,
        distillation=0.5,
    )
