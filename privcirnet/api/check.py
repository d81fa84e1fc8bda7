"""A dry run of the verbs: their changes, refusals and costs, before anything is trained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from privcirnet.api.profiles import encryption, profile_for
from privcirnet.api.progress import bars
from privcirnet.api.settings import verb
from privcirnet.config import CompileConfig
from privcirnet.he.planning.profile import Profile
from privcirnet.nn.checks import check_images, check_module
from privcirnet.runs.check import Check
from privcirnet.runs.check import check as check_network


@verb
def check(  # noqa: PLR0913
    model: nn.Module,
    images: Tensor,
    config: CompileConfig | None = None,
    *,
    activation: str | Mapping[str, str] = "own",
    block_size: int = 4,
    profile: Profile | str | Path = "calibrate",
    progress: bool = True,
    **settings: Any,
) -> Check:
    """Report the changes and refusals of the verbs, layer by layer, and the cost of an encrypted image.

    It is a dry run on copies, some seconds long. Costs are predicted from shapes: values, which parameters depend on,
    are not known before training: proved bounds may take a wider modulus, and some per cent more.

    Args:
        model: any network, trained or not; left as it was.
        images: some as the network reads them, (N, C, H, W) or (N, F); only their size matters.
        config: settings of its compilation.
        activation: "own", the road of :func:`privcirnet.compile`: activations stay and run exactly; or an
            activation that :func:`privcirnet.polynomial_` puts in their place.
        block_size: block size of the network whose costs are shown beside the dense one's; a network that is circulant
            has one row.
        profile: operation times, as for :func:`privcirnet.search`.
        progress: whether bars are shown.
        settings: fields of ``config`` by name, as ``link="lan"``.

    Returns:
        ``changes``, ``refusals`` and ``forecasts``: seconds, bytes and memory. Printed, a table.

    Raises:
        RuleError: the network or the images are none, or a setting is out of range.
    """
    check_module(model)
    check_images(model, images)
    he, bar = encryption("check", config, settings, profile), bars(progress)
    times = profile_for(profile, he, bar)
    with bar("checking the network", 0):
        return check_network(model, images, he, times, activation, block_size)
