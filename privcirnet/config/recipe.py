"""How networks are trained: the settings of privcirnet.fit, and the schema of configs/recipe that extends them."""

from dataclasses import dataclass

from privcirnet.config.checks import check, check_name

STARTS = ("least_squares", "fisher", "frobenius", "random")
STAGES = ("train", "finetune", "replace", "qat")
OPTIMIZERS = ("adamw", "sgd", "muon")


@dataclass(frozen=True)
class FitConfig:
    """How :func:`privcirnet.fit` trains; weights are usually there already."""

    epochs: int = 10
    """passes over the training images."""
    batch_size: int = 64
    """images in a batch."""
    optimizer: str = "adamw"
    """adamw, sgd, or muon: orthogonal updates of matrices, which learn most per epoch; AdamW's of all else."""
    momentum: float = 0.9
    """of sgd and muon."""
    learning_rate: float = 1e-3
    """at the start of a cosine."""
    relative: bool = False
    """learning rates are shares of each tensor's root mean square: for 8 bits, where tensors may be of any size."""
    min_learning_rate: float = 1e-5
    """at its end."""
    warmup_epochs: int = 0
    """epochs of a linear rise before the cosine."""
    weight_decay: float = 0.01
    """of weights; biases and norms have none."""
    clip_gradient: float = 1.0
    """largest norm of all gradients together; 0 for none."""
    ema: float = 0.0
    """decay of the running average of the weights, which is saved in their place; 0 for none."""
    crop_padding: int = 0
    """pixels of padding on each side before a random crop; 0 for no such crops."""
    flip: bool = False
    """mirror half of the images, drawn at random."""
    mixup: float = 0.0
    """alpha of mixup; 0 for none."""
    cutmix: float = 0.0
    """alpha of cutmix; 0 for none."""
    mix_epochs: int = -1
    """epochs with mixup and cutmix; -1 for all."""
    amp: str = "false"
    """automatic mixed precision, bfloat16 where torch considers it safe: true, false, or auto: if it is faster here."""
    channels_last: bool = False
    """images with channels innermost: faster convolutions on many machines."""
    compile: bool = False
    """compile training steps (torch.compile): the first is slow, the others are faster; needs a C++ compiler."""
    outlier_penalty: float = 0.0
    """weight of the penalty on images whose values before a square are far above the usual; 0 for none."""
    label_smoothing: float = 0.0
    """in [0, 1)."""
    distillation: float = 0.5
    """weight of the teacher's soft labels, in [0, 1]."""


@dataclass(frozen=True)
class RecipeConfig(FitConfig):
    """The training of one stage of train.py, from random weights unless it is told otherwise.

    Every default stands here once: configs/recipe and configs/experiment name only what differs.
    """

    epochs: int = 40
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    clip_gradient: float = 0.0
    label_smoothing: float = 0.05
    distillation: float = 0.0
    stage: str = "train"
    """train (dense), finetune (circulant), replace (activations, norms: by model.arguments) or qat."""
    init: str = ""
    """run directory, checkpoint or hf-hub:OWNER/NAME to start from; empty for random weights. In train the weights that
    fit, as of other classes."""
    plan: str = ""
    """plan.json: of finetune with block sizes, of replace with what activations become."""
    uniform: int = 0
    """block size of every layer that can have it, instead of a plan; 0 for none. Only for finetune."""
    start: str = "least_squares"
    """circulant weights that finetune starts from: least_squares (nearest outputs on training images), the nearest
    weights, loss-aware (fisher) or with equal importance (frobenius), or random."""
    pad: bool = False
    """whether uniform pads layers to whole blocks, those without batch norm or AESPA; false: blocks must divide."""
    damping: float = 1.0
    """of start=fisher: importance of a weight = its Fisher information + damping x its layer's mean."""
    teacher: str = ""
    """run directory or checkpoint of the network whose soft labels are learned; empty for none."""
    teach_once: bool = False
    """ask the teacher once, of each training image as it is, not of every batch as it is augmented: much faster."""
    imitate: str = ""
    """blocks that imitate those of the original, as a pattern of module names: 'blocks.*'; empty for none."""
    original: str = ""
    """run directory or checkpoint of the network that is imitated; empty: recipe.init, which has the old operations."""
    crop_scale: float = 0.0
    """smallest share of the area of a random crop that is resized to the image, the largest is 1; 0 for none."""
    erase: float = 0.0
    """share of images with a random rectangle erased."""
    rand_augment: int = 0
    """random operations (RandAugment) on each image, one after another; 0 for none."""
    rand_magnitude: int = 9
    """their strength, 0 to 30."""
    rand_deviation: float = 0.0
    """standard deviation of the strength of each operation on each image."""

    def __post_init__(self) -> None:
        check_name("recipe.stage", self.stage, STAGES)
        check_name("recipe.start", self.start, STARTS)
        check(self.damping >= 0, "recipe.damping must not be negative", self.damping, "use 1")
        check(self.outlier_penalty >= 0, "recipe.outlier_penalty must not be negative", self.outlier_penalty, "use 0.1")
        imitates, both = bool(self.imitate), f"imitate={self.imitate} compile={self.compile}"
        check(not (imitates and self.compile), "an imitation is not compiled", both, "leave one out")
        check(not imitates or bool(self.init), "recipe.imitate needs recipe.init", "none", "give a run directory")
        useless = bool(self.original) and not imitates
        check(not useless, "a recipe.original needs recipe.imitate", self.original, "use imitate='blocks.*'")
        check(self.epochs >= 0, "recipe.epochs must not be negative", self.epochs, "use 40")
        check(self.batch_size >= 2, "recipe.batch_size must be at least 2", self.batch_size, "use 64")
        check_name("recipe.optimizer", self.optimizer, OPTIMIZERS)
        check(self.learning_rate > 0, "recipe.learning_rate must be positive", self.learning_rate, "use 3e-3")
        object.__setattr__(self, "amp", str(self.amp).lower())
        check(self.amp in ("true", "false", "auto"), "recipe.amp must be true, false or auto", self.amp, "use auto")
        in_range = 0 <= self.label_smoothing < 1 and 0 <= self.distillation <= 1
        got = f"{self.label_smoothing}, {self.distillation}"
        check(in_range, "recipe.label_smoothing and distillation must be fractions", got, "use 0.05 and 0.5")
        fractions = self.momentum, self.ema, self.erase
        check(all(0 <= f < 1 for f in fractions), "recipe.momentum, ema, erase must be in [0, 1)", fractions, "use 0.9")
        sizes = self.warmup_epochs, self.clip_gradient, self.crop_padding, self.rand_augment, self.mixup, self.cutmix
        rule = "recipe.warmup_epochs, clip_gradient, crop_padding, rand_augment, mixup and cutmix must not be negative"
        check(min(sizes) >= 0, rule, sizes, "use 0 for none")
        strength = self.rand_magnitude
        check(0 <= strength <= 30, "recipe.rand_magnitude must be between 0 and 30", strength, "use 9")
        spread = self.rand_deviation
        check(spread >= 0, "recipe.rand_deviation must not be negative", spread, "use 0.5, or 0 for none")
        smallest, padding = self.crop_scale, self.crop_padding
        check(0 <= smallest <= 1, "recipe.crop_scale must be a share of the area", smallest, "use 0.08, or 0 for none")
        both = f"crop_scale={smallest} crop_padding={padding}"
        check(not (smallest and padding), "a recipe has one kind of random crop", both, "leave one out")
        mixes, both = max(self.mixup, self.cutmix), f"teach_once=true mixup={self.mixup} cutmix={self.cutmix}"
        check(not (self.teach_once and mixes), "mixed images have no labels of their own", both, "leave one out")
        taught = self.distillation
        useless = self.stage == "train" and self.teacher and not taught
        check(not useless, "a recipe.teacher needs recipe.distillation", taught, "use 0.5, or leave the teacher out")
        started = self.stage == "train" or bool(self.init)
        check(started, "a later stage needs recipe.init", "none", "give a run directory")
