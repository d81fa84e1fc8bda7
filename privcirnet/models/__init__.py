"""Networks that timm does not have, registered with it: ``timm.create_model("digits_resnet")``."""

from privcirnet.models.digits import DigitsResNet, digits_resnet

__all__ = ["DigitsResNet", "digits_resnet"]
