"""What the committed networks reach: accuracy, and encrypted inference of held-out images."""

import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from papers.reproduce.cells import Values
from privcirnet.config import HEConfig
from privcirnet.data import Files, load
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.he.planning.network_links import LINKS
from privcirnet.runs.ckks import Ckks, bits_of
from privcirnet.runs.evaluation import Evaluation, evaluate
from privcirnet.runs.export import ckks_program, lower_for, quantized
from privcirnet.runs.interactive import Interactive
from privcirnet.train import stages
from privcirnet.train.accuracy import accuracy

CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"
"""Folder of the committed networks; a wheel has none."""

_IMAGES, _FAILURE_BITS, _MB = 4, 13, 1e6


def top1(images: str, checkpoint: str, data: str) -> Values:
    """Return the accuracy of a committed network.

    Args:
        checkpoint: path in checkpoints/, without its ending.

    Raises:
        RuleError: the images or the network are missing.
    """
    held_out = _data(images, data)
    return {"top-1": accuracy(stages.load_checkpoint(_path(checkpoint), held_out).model, held_out)}


def inference(images: str, checkpoint: str, data: str) -> Values:
    """Return the traffic and latency of encrypted inference by a committed 8-bit network, every value checked.

    Both parties are in one process; the latency adds the time of a link of 9 MB/s and 80 ms. The first image, which
    also loads compiled kernels, does not count.

    Args:
        checkpoint: path in checkpoints/, without its ending; of an 8-bit network.

    Raises:
        RuleError: the images or the network are missing, it has no bits, or an encrypted value is not the integer
            network's.
    """
    return over_link(_evaluated(images, checkpoint, data))


def ckks_network(images: str, checkpoint: str, data: str) -> Values:
    """Return the latency of encrypted inference on bootstrapped CKKS, in processor seconds of both parties.

    It takes 12 GB of memory for ResNet-20. The first image, which also loads compiled kernels, does not count.

    Args:
        checkpoint: path in checkpoints/, without its ending.

    Raises:
        RuleError: the images or the network are missing, the memory is too small, or a class is not that in clear.
    """
    held_out = _data(images, data)
    network = stages.load_checkpoint(_path(checkpoint), held_out).model
    program = ckks_program(HEConfig(), network, held_out)
    found = evaluate(Ckks(program), held_out.test_images[:_IMAGES].numpy().astype(np.int64))
    if (found.classes != found.audited.clear.argmax(axis=1)).any():
        raise RuleError("every class must be that of the network in clear", got=bits_of(found), remedy="run it again")
    return {"latency": statistics.median(answer.processor for answer in found.answers[1:])}


def over_link(found: Evaluation, link: str = "wan") -> Values:
    """Return latency (s), computing (s), traffic (MB) and rounds of an evaluation with both parties in this process.

    Computing is in processor seconds, as if there was one thread.

    Args:
        found: of two images or more, the first of which does not count.
        link: whose time the latency adds, of :data:`planning.network_links.LINKS`.

    Raises:
        RuleError: an encrypted value is not the integer network's.
    """
    if wrong := [nodes[0] for nodes in found.wrong if nodes]:
        raise RuleError("every value must be the integer network's", got=wrong[0], remedy="run it again")
    answers = found.answers[1:]
    computing = statistics.median(answer.processor for answer in answers)
    sent = statistics.median(sum(answer.bytes) for answer in answers)
    rounds, between = len(answers[0].traffic), LINKS[link]
    latency = computing + sent / between.bandwidth + rounds * between.round_trip
    return {"latency": latency, "computing": computing, "traffic": sent / _MB, "rounds": rounds}


def _evaluated(images: str, checkpoint: str, name: str) -> Evaluation:
    data = _data(images, name)
    network = stages.load_checkpoint(_path(checkpoint), data).model
    he = HEConfig(profile="counted", bounds="measured", failure_bits=_FAILURE_BITS)
    planned = lower_for(he, quantized(network), data)
    return evaluate(Interactive(planned.program), data.test_images[:_IMAGES].numpy().astype(np.int64))


@cache
def _data(images: str, name: str) -> ImageData:
    return load(name, files=Files(images))


def _path(checkpoint: str) -> Path:
    return CHECKPOINTS / f"{checkpoint}.safetensors"


TRAINED: dict[str, Callable[..., Values]] = {"top1": top1, "inference": inference, "ckks_network": ckks_network}
"""Name in a data file -> what measures it; the first argument is the folder of the images."""
