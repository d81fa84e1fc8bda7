"""The errors that users are meant to read: rule, value and remedy on one line."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial


class RuleError(ValueError):
    """A rule of the toolkit, broken by a value that the user can change.

    Args:
        rule: broken rule in words.
        got: the offending value.
        remedy: advice to the user.

    The scripts print it as one line and exit with status 2; every other exception is a bug and keeps its traceback.

    >>> print(RuleError("block size must divide both weight dimensions", got="4 for (8, 10)", remedy="use 1 or 2"))
    block size must divide both weight dimensions: got 4 for (8, 10); use 1 or 2
    """

    retry_after_s = 0
    """Seconds after which another attempt may succeed, where a server says so; 0: never."""

    def __init__(self, rule: str, *, got: object, remedy: str) -> None:
        super().__init__(f"{rule}: got {got}; {remedy}")
        self.rule = rule
        self.got = got
        self.remedy = remedy
        self._each: tuple[RuleError, ...] = ()

    @property
    def each(self) -> "tuple[RuleError, ...]":
        """Errors that this one stands for, as of several layers; itself for a single one."""
        return self._each or (self,)

    def of(self, errors: "Sequence[RuleError]") -> "RuleError":
        """Return this error, which stands for several from now on.

        Args:
            errors: errors that it stands for.
        """
        self._each = tuple(errors)
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle for another process, with the value as text."""
        return partial(type(self), self.rule, got=str(self.got), remedy=self.remedy), ()


def listed(names: list[str], most: int = 5) -> str:
    """Return names in one line, the first ones of many.

    Args:
        most: largest number of names.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name that was meant, or "": by its initials, by its letters, or by its last part alone.

    Args:
        name: name as typed, such as ``lr``, or with a group before it, ``recipe.lr``.
        cutoff: cutoff of :func:`difflib.get_close_matches`.

    >>> known = ["seed", "recipe.learning_rate", "recipe.epochs"]
    >>> nearest("recipe.lr", known), nearest("lr", known), nearest("sead", known), nearest("epoch", known)
    ('recipe.learning_rate', 'recipe.learning_rate', 'seed', 'recipe.epochs')
    """
    names, (group, _, last) = [*names], name.rpartition(".")
    parts = {candidate: candidate.rpartition(".") for candidate in names}
    initials = ("".join(word[:1] for word in of[2].split("_")) for of in parts.values())
    meant = [candidate for candidate, letters in zip(names, initials, strict=True) if len(last) > 1 and letters == last]
    meant = [candidate for candidate in meant if group in ("", parts[candidate][0])]
    meant = meant or difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    alone = difflib.get_close_matches(name, [of[2] for of in parts.values()], n=1, cutoff=cutoff)
    meant = meant or [candidate for candidate in names if parts[candidate][2] in alone]
    return meant[0] if meant else ""


def first_line(error: Exception) -> str:
    """Return the first line of another library's error; its class name if it has no text.

    >>> first_line(ValueError("one")), first_line(KeyError())
    ('one', 'KeyError')
    """
    return next(iter(str(error).splitlines()), type(error).__name__)


class DoesNotFit(RuleError):
    """A network whose values are too large for the encryption parameters; fewer bits or other parameters would help."""


class Lost(RuleError):
    """A loss of the other party, which cannot be reached, went, or was too slow: another connection may reach it."""


class Interrupted(RuleError):
    """An interruption of work that both parties began, which says nothing against another attempt from the start."""

    retry_after_s = 1


class Errors(list[RuleError]):
    """The errors of the layers of a network, collected to be reported together."""

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep a :class:`RuleError` in place of raising it.

        Yields:
            Nothing.
        """
        try:
            yield
        except RuleError as error:
            self.append(error)

    def check(self) -> None:
        """Raise the first error, if there is one, which then stands for all (:attr:`RuleError.each`)."""
        if self:
            raise self[0].of(self)
