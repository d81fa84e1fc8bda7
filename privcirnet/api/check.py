"""What the verbs will change, refuse and cost, before anything is trained."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from privcirnet.api.profiles import profile_for
from privcirnet.api.progress import bars
from privcirnet.api.settings import known_settings
from privcirnet.config import HEConfig
from privcirnet.he.planning.profile import Profile
from privcirnet.nn.checks import check_images, check_module
from privcirnet.runs.check import Check
from privcirnet.runs.check import check as check_network

_NOT_OWN = ("profile", "bounds", "link", "bound_images")
"""Settings that have an argument of their own."""


def check(  # noqa: PLR0913
    model: nn.Module,
    images: Tensor,
    *,
    activation: str = "aespa",
    uniform: int = 4,
    profile: Profile | str | Path = "calibrate",
    link: str = "local",
    progress: bool = True,
    **settings: Any,
) -> Check:
    """Say what the verbs will change and refuse, layer by layer, and what an encrypted image will take.

    It is a dry run on copies, some seconds long. Costs are predicted from shapes: values, which parameters depend on,
    are not known before training.

    Args:
        model: any network, trained or not; left as it was.
        images: some as the network reads them, (N, C, H, W); only their size matters.
        activation: for :func:`privcirnet.polynomial_`.
        uniform: block size of the circulant network whose costs are shown beside the dense one's.
        profile: operation times, as for :func:`privcirnet.search`.
        link: "local", "lan", "wan44" or "wan": the network between client and server.
        progress: whether bars are shown.
        settings: further ones of :class:`privcirnet.config.HEConfig`, as for :func:`privcirnet.compile`.

    Returns:
        ``changes``, ``refusals`` and ``forecasts``: seconds, bytes and memory. Printed, a table.

    Raises:
        RuleError: the network or the images are none, or a setting is out of range.
    """
    check_module(model)
    check_images(model, images)
    own, bar = known_settings("check", settings, HEConfig, _NOT_OWN), bars(progress)
    named = "calibrate" if isinstance(profile, Profile) else str(profile)
    he = HEConfig(profile=named, bounds="measured", link=link, **own)
    times = profile_for(profile, he, bar)
    with bar("checking the network", 0):
        return check_network(model, images, he, times, activation, uniform)
