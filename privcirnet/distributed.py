"""Processes that work on one network together, started by torchrun: each takes its share of every batch.

Training gives the weights that one process would give on the whole batches, up to the rounding of sums in another
order. Every process draws the same batches, augments the whole batch in the same way and then takes its share. The
statistics of batch norms and AESPA are those of all shares: torch's SyncBatchNorm knows neither AESPA nor empty shares.
Gradients are torch's DistributedDataParallel's, of losses weighted by their shares. A share may be empty. Random
numbers inside the network (dropout, stochastic rounding) are drawn by each process for its own images, so these differ
from those of one process.

Cost of a step: the traffic of DistributedDataParallel, and for each batch norm or AESPA two small sums forward and one
or two backward. Every process augments the whole batch.

Without torchrun there is one process, and every function returns its input.
"""

import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from privcirnet.errors import RuleError, first_line
from privcirnet.nn.activations import Aespa
from privcirnet.nn.norm import BlockBatchNorm2d

T = TypeVar("T")
P = ParamSpec("P")
_PATIENCE = timedelta(days=1)
"""Longest wait for the first process to decode images or measure; torchrun ends all processes when one fails."""
_CPU = torch.device("cpu")


def joined(main: Callable[P, None]) -> Callable[P, None]:
    """Let a program work together with the other processes that torchrun started, if it did.

    After an error the process group is not destroyed, because that would wait for the others. torchrun ends them.

    Returns:
        The program, in a form that launchers of a sweep can send to other processes.
    """

    @wraps(main)  # and no context manager, whose generator cannot be pickled
    def program(*args: P.args, **settings: P.kwargs) -> None:
        if not dist.is_torchelastic_launched():
            main(*args, **settings)
            return
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=_PATIENCE)
        main(*args, **settings)
        dist.destroy_process_group()

    return program


def rank() -> int:
    """Return this process's number; process 0 writes and shows."""
    return dist.get_rank() if _together() else 0


def processes() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if _together() else 1


def own_device(device: str) -> str:
    """Return the device of this process; ``device``: "cpu", "cuda", or "auto" for a GPU if there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except Exception as error:  # of several kinds, by device and by how torch was built
        got = f"{device}: {first_line(error)}"
        raise RuleError("device must be one of this machine", got=got, remedy="use device=cpu or auto") from None
    if device != "cuda" or not _together():
        return device
    place, there = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if place >= there:
        remedy = f"use --nproc-per-node={there}, or device=cpu"
        raise RuleError("every process must have its own GPU", got=f"process {place + 1} for {there}", remedy=remedy)
    torch.cuda.set_device(place)
    return f"cuda:{place}"


def share(values: Tensor) -> Tensor:
    """Return this process's part of the first dimension: even parts, the first ones longer by one where needed.

    Args:
        values: (N, ...), the same in every process.
    """
    return values.tensor_split(processes())[dist.get_rank()] if _together() else values


def total(x: Tensor) -> Tensor:
    """Return the sum over all processes of a tensor that each has; its gradient is the sum of theirs.

    Args:
        x: tensor of the same shape in every process.
    """
    return _Total.apply(x) if _together() else x  # type: ignore[return-value]


def from_first(make: Callable[[], T]) -> T:
    """Return the first process's result in all processes; ``make``: function that the first process alone calls."""
    if not _together():
        return make()
    results: list[Any] = [make() if rank() == 0 else None]
    dist.broadcast_object_list(results, src=0, device=_CPU)
    return results[0]


@contextmanager
def first_goes_first() -> Generator[None]:
    """Let the first process of each machine work alone; the others follow when it is done and find its results."""
    follows = int(os.environ.get("LOCAL_RANK", "0")) > 0
    if follows:
        total(torch.zeros(()))
    yield
    if not follows:
        total(torch.zeros(()))


def rows(x: Tensor) -> Tensor:
    """Return every process's tensor: (processes, ...); ``x``: tensor of the same shape in every process."""
    if not _together():
        return x[None]
    gathered = [torch.empty_like(x) for _ in range(processes())]
    dist.all_gather(gathered, x)
    return torch.stack(gathered)


def own_row(x: Tensor) -> Tensor:
    """Return this process's part of the result of :func:`rows`, which may stem from another number of processes.

    Args:
        x: (processes, ...).
    """
    return x[rank() % len(x)].clone()  # torch.set_rng_state reads past a view


def prepare_(model: nn.Module) -> None:
    """Give a model the first process's weights, and norms that measure the images of all processes.

    Batch norms become :class:`BlockBatchNorm2d` with blocks of one channel: the names in the state dict stay.

    Args:
        model: network; changed in place, left as it is if there is one process.
    """
    if not _together():
        return
    for value in model.state_dict().values():
        dist.broadcast(value, src=0)
    replaced: dict[nn.Module, nn.Module] = {}
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.BatchNorm2d) and not isinstance(child, BlockBatchNorm2d):
                replaced[child] = replaced.get(child) or BlockBatchNorm2d.from_batch_norm(child, 1)
                setattr(parent, name, replaced[child])
    # If it were compiled, processes with and without images would wait for each other.
    everywhere: Any = torch.compiler.disable(total)
    for module in model.modules():
        if isinstance(module, BlockBatchNorm2d | Aespa):
            module.total = everywhere
        elif isinstance(module, _BatchNorm):
            got, remedy = type(module).__name__, "train this network with one process"
            raise RuleError("batch norms over several processes must be BatchNorm2d", got=got, remedy=remedy)


def weighted(loss: Tensor, share_size: int, batch_size: int) -> Tensor:
    """Return this process's part of a batch's mean loss.

    Args:
        loss: mean over this process's share, (); NaN if the share is empty.
    """
    return loss * (share_size / batch_size) if share_size else loss.nan_to_num(nan=0.0)


def parallel(model: nn.Module) -> nn.Module:
    """Return the network to train for an epoch: gradients through it are averaged over the processes.

    After its first step torch adds in another order. A new one for each epoch gives a resumed run the same order.

    Args:
        model: network after :func:`prepare_`, on this process's device.
    """
    return DistributedDataParallel(model, init_sync=False) if _together() else model


def collecting(network: nn.Module, more: bool) -> AbstractContextManager[None]:
    """Return a context for a part of a batch: its gradients stay in their process if there are more to add to them."""
    return network.no_sync() if more and isinstance(network, DistributedDataParallel) else nullcontext()


def _together() -> bool:
    return dist.is_available() and dist.is_initialized()


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        summed = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed)
        return summed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return total(gradients[0])
