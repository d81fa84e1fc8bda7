"""How networks are trained: the settings of privcirnet.fit, and the schema of configs/recipe that extends them."""

from dataclasses import dataclass

from privcirnet.config.checks import check, check_fields, choice, number

STARTS = ("least_squares", "fisher", "frobenius", "random")
STAGES = ("train", "finetune", "replace", "qat")
OPTIMIZERS = ("adamw", "sgd", "muon")


@dataclass
class FitConfig:
    """How :func:`privcirnet.fit` trains; weights are usually there already."""

    epochs: int = number(40, least=0)
    """passes over the training images."""
    batch_size: int = number(64, least=2)
    """images in a batch."""
    optimizer: str = choice("adamw", OPTIMIZERS)
    """adamw, sgd, or muon: orthogonal updates of matrices, which learn most per epoch; AdamW's of all else."""
    momentum: float = number(0.9, least=0, below=1)
    """of sgd and muon."""
    learning_rate: float = number(2e-3, above=0)
    """at the start of a cosine."""
    relative: bool = False
    """learning rates are shares of each tensor's root mean square: for 8 bits, where tensors may be of any size."""
    min_learning_rate: float = number(1e-5, least=0)
    """at its end."""
    warmup_epochs: int = number(0, least=0)
    """epochs of a linear rise before the cosine."""
    weight_decay: float = number(0.05, least=0)
    """of weights; biases and norms have none."""
    clip_gradient: float = number(1.0, least=0)
    """largest norm of all gradients together; 0 for none."""
    ema: float = number(0.0, least=0, below=1)
    """decay of the running average of the weights, which is saved in their place; 0 for none."""
    crop: float = number(0.0, least=0)
    """random crops: 1 and more: pixels of padding on each side before; below 1: smallest share of the image's area that
    a crop has, which is resized to the image; 0 for none."""
    flip: bool = False
    """mirror half of the images, drawn at random."""
    mixup: float = number(0.0, least=0)
    """alpha of mixup; 0 for none."""
    cutmix: float = number(0.0, least=0)
    """alpha of cutmix; 0 for none."""
    mix_epochs: int = number(-1, least=-1)
    """epochs with mixup and cutmix; -1 for all."""
    amp: str = choice("false", ("true", "false", "auto"))
    """automatic mixed precision, bfloat16 where torch considers it safe: true, false, or auto: if it is faster here."""
    channels_last: bool = False
    """images with channels innermost: faster convolutions on many machines."""
    compile: bool = False
    """compile training steps (torch.compile): the first is slow, the others are faster; needs a C++ compiler."""
    outlier_penalty: float = number(0.0, least=0)
    """weight of the penalty on images whose values before a square are far above the usual; 0 for none."""
    label_smoothing: float = number(0.05, least=0, below=1)
    """in [0, 1)."""
    distillation: float = number(0.5, least=0, most=1)
    """weight of the teacher's soft labels, in [0, 1]."""


@dataclass
class ProjectionConfig:
    """How dense weights become circulant ones."""

    pad: bool = False
    """whether layers may be padded to whole blocks, those without batch norm or AESPA; false: blocks must divide."""
    damping: float = number(1.0, least=0)
    """importance of a weight = its Fisher information + damping x its layer's mean: of start=fisher, of a search."""


@dataclass
class RecipeConfig(ProjectionConfig, FitConfig):
    """The training of one stage of train.py. configs/recipe and configs/experiment name only what differs."""

    stage: str = choice("train", STAGES)
    """train (dense), finetune (circulant), replace (activations, norms: by model.arguments) or qat."""
    init: str = ""
    """run directory, checkpoint or hf-hub:OWNER/NAME to start from; empty for random weights. In train the weights that
    fit, as of other classes; or efficientnet_lite0, of ImageNet; or another program's file of weights, .safetensors or
    a torch state dict."""
    plan: str = ""
    """plan.json: of finetune with block sizes, of replace with what activations become."""
    uniform: int = 0
    """block size of every layer that can have it, instead of a plan; 0 for none. Only for finetune."""
    start: str = choice("least_squares", STARTS)
    """circulant weights that finetune starts from: least_squares (nearest outputs on training images), the nearest
    weights, loss-aware (fisher) or with equal importance (frobenius), or random."""
    teacher: str = ""
    """run directory or checkpoint of the network whose soft labels are learned; empty for none."""
    teach_once: bool = False
    """ask the teacher once, of each training image as it is, not of every batch as it is augmented: much faster."""
    imitate: str = ""
    """blocks that imitate those of the original, as a pattern of module names: 'blocks.*'; empty for none."""
    original: str = ""
    """run directory or checkpoint of the network that is imitated; empty: recipe.init, which has the old operations."""
    erase: float = number(0.0, least=0, below=1)
    """share of images with a random rectangle erased."""
    rand_augment: int = number(0, least=0)
    """random operations (RandAugment) on each image, one after another; 0 for none."""
    rand_magnitude: int = number(9, least=0, most=30)
    """their strength, 0 to 30."""
    rand_deviation: float = number(0.0, least=0)
    """standard deviation of the strength of each operation on each image."""

    def __post_init__(self) -> None:
        self.amp = str(self.amp).lower()
        check_fields(self, "recipe.")
        imitates, both = bool(self.imitate), f"imitate={self.imitate} compile={self.compile}"
        check(not (imitates and self.compile), "an imitation is not compiled", both, "leave one out")
        check(not imitates or bool(self.init), "recipe.imitate needs recipe.init", "none", "give a run directory")
        useless = bool(self.original) and not imitates
        check(not useless, "a recipe.original needs recipe.imitate", self.original, "use imitate='blocks.*'")
        whole = self.crop < 1 or self.crop == int(self.crop)
        check(whole, "recipe.crop must be a share below 1, or whole pixels", self.crop, "use 4, or 0.08")
        mixes, both = max(self.mixup, self.cutmix), f"teach_once=true mixup={self.mixup} cutmix={self.cutmix}"
        check(not (self.teach_once and mixes), "mixed images have no labels of their own", both, "leave one out")
        taught = self.distillation
        useless = self.stage == "train" and self.teacher and not taught
        check(not useless, "a recipe.teacher needs recipe.distillation", taught, "use 0.5, or leave the teacher out")
        started = self.stage == "train" or bool(self.init)
        check(started, "a later stage needs recipe.init", "none", "give a run directory")
