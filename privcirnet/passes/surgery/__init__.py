"""Surgery: any network, from timm, torchvision or a user's own module, becomes one that can run encrypted.

:func:`polynomial_` traces the network at one image size and replaces what is no polynomial. The weights stay.
"""

from privcirnet.passes.surgery.changes import Change
from privcirnet.passes.surgery.polynomial import polynomial_

__all__ = ["Change", "polynomial_"]
