"""Surgery: any network, from timm, torchvision or a user's own module, becomes one that can run encrypted.

:func:`polynomial_` traces the network at one image size and replaces what is no polynomial. The weights stay.
:func:`exact_copy` keeps what runs exactly, and changes no value.
"""

from privcirnet.passes.surgery.edit import Replacement
from privcirnet.passes.surgery.polynomial import exact_copy, polynomial_

__all__ = ["Replacement", "exact_copy", "polynomial_"]
