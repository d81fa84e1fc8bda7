"""Block sizes for any network under a latency budget."""

from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from privcirnet.api.profiles import profile_for
from privcirnet.api.progress import bars
from privcirnet.api.settings import arguments_named, known_settings
from privcirnet.config import HEConfig, SearchConfig
from privcirnet.data.own import OwnImages, Pairs
from privcirnet.he.planning.profile import Profile
from privcirnet.nn.checks import check_weights, logits_of_one
from privcirnet.nn.plain import with_plain_weights
from privcirnet.runs.search import SearchResult, search_in
from privcirnet.train.sensitivities import check_trained

_NOT_OWN = ("root", "out", "init", "data", "he")
"""Settings of search.py alone."""


@arguments_named()
def search(  # noqa: PLR0913
    model: nn.Module,
    images: Pairs,
    *,
    budget: float = 0.0,
    uniform: int = 0,
    profile: Profile | str | Path = "calibrate",
    link: str = "local",
    family: str = "spectral",
    progress: bool = True,
    **settings: Any,
) -> SearchResult:
    """Choose a block size for every layer, for the least loss within a latency budget (PrivCirNet, Section 3.3).

    Args:
        model: trained and dense; left as it was.
        images: what it was trained on: (images (N, C, H, W), labels (N,)), or a DataLoader.
        budget: seconds for an image; 0 for the latency of ``uniform``.
        uniform: block size whose latency everywhere is the budget; 0 for 4 unless ``budget`` is given.
        profile: operation times: measured once a process ("calibrate", some seconds), a file's, "counted" for the
            papers' units, or that of an earlier search.
        link: "local", "lan", "wan44" or "wan": the network between client and server.
        family: encodings that layers may have: "spectral", or "any" with coefficient encodings besides.
        progress: whether bars are shown.
        settings: further ones of :class:`privcirnet.config.SearchConfig`, as ``block_sizes``, ``samples``, ``pinned``,
            ``equal``, ``fraction``, ``traffic_mb``, ``objective``.

    Returns:
        The plan: ``block_sizes`` for :func:`privcirnet.circulant_`, the ``profile`` for :func:`privcirnet.compile`.
        Printed, it is a table.

    Raises:
        RuleError: a setting is out of range, the budget is out of reach, images or labels do not fit the network, or
            its weights are not finite or shared.
    """
    check_weights(model)
    model = with_plain_weights(model)
    named = "" if isinstance(profile, Profile) else str(profile)
    he = HEConfig(profile=named or "calibrate", link=link, family=family)
    given = {"sweep": 0, "uniform": uniform, "budget": budget, **settings}
    config = SearchConfig(he=he, **known_settings("search", given, SearchConfig, _NOT_OWN))
    data, bar = OwnImages(images, None, partial(logits_of_one, model)), bars(progress)
    check_trained(model, data, config.sensitivity, config.samples)
    return search_in(model, data, config, profile_for(profile, he, bar), bar)
