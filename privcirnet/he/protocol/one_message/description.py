"""The interface of a program that takes one message each way to the parties' sessions."""

from abc import abstractmethod

from privcirnet.he.program.program import PublicDescription
from privcirnet.he.protocol.wire import MessageSizes


class OneMessageDescription(PublicDescription):
    """The public description of a program that takes one message each way."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Ciphertexts of a row of a request."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Ciphertexts of a row of an answer."""

    @property
    @abstractmethod
    def sizes(self) -> MessageSizes:
        """The most bytes of its messages."""
