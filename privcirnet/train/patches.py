"""Fewer patches in the first epochs: a transformer learns as much from some of an image, in a fraction of the time.

Source: Liu et al., "PatchDropout: economizing vision transformers using patch dropout" (WACV 2023), Section 3.
Departure: the last quarter of the epochs has all patches, the last epoch at least.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.tokens import Tokens
from privcirnet.train.callbacks import Callback

FEWER = 0.75
"""Share of the epochs in which patches are left out."""


class FewerPatches(Callback):
    """The patches that a transformer sees from epoch to epoch, drawn anew for each image of a batch.

    Args:
        model: has one :class:`~privcirnet.nn.tokens.Tokens`; changed only in :meth:`epoch`, and only in training.
        leader: another transformer that sees each batch just before the model does; the model then sees its patches.

    Raises:
        RuleError: a network is no such transformer.
    """

    def __init__(self, model: nn.Module, share: float, epochs: int, leader: nn.Module | None = None) -> None:
        self._tokens = _tokens_of(model)
        self._first = _tokens_of(leader) if leader else self._tokens
        self._share, self._fewer = share, min(FEWER * epochs, epochs - 1)
        self._places = torch.empty(0)

    @contextmanager
    def epoch(self, number: int) -> Iterator[None]:
        """Let the network see the patches of an epoch.

        Yields:
            Nothing; the network sees all patches again afterwards.
        """
        if number >= self._fewer:
            yield
            return
        hooks = [tokens.register_forward_hook(self._seen) for tokens in {self._first, self._tokens}]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _seen(self, module: nn.Module, inputs: tuple[Tensor, ...], tokens: Tensor) -> Tensor:
        """Return the class token and some of the others: (N, 1 + P, C) to (N, 1 + share P, C)."""
        if module is self._tokens and not module.training:
            return tokens
        if module is self._first:
            self._places = self._drawn(tokens)
        return tokens.gather(1, self._places.unsqueeze(-1).expand(-1, -1, tokens.shape[2]))

    def _drawn(self, tokens: Tensor) -> Tensor:
        """Return the places of the class token and of some of the others in each image, (N, 1 + share P)."""
        count, patches = tokens.shape[0], tokens.shape[1] - 1
        kept = max(1, round(self._share * patches))
        drawn = torch.rand(count, patches, device=tokens.device).topk(kept).indices + 1
        return torch.cat([drawn.new_zeros(count, 1), drawn], dim=1)


def _tokens_of(model: nn.Module) -> Tokens:
    found = [module for module in model.modules() if isinstance(module, Tokens)]
    if len(found) != 1:
        got = f"{len(found)} modules that make tokens"
        raise RuleError("recipe.patches needs a transformer", got=got, remedy="use recipe.patches=0")
    return found[0]
