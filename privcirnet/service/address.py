"""The address of a server: "HOST:PORT"."""

import ipaddress
import socket

from privcirnet.errors import RuleError


def parse_address(text: str, setting: str = "server=") -> tuple[str, int]:
    """Return host and port of "HOST:PORT".

    Args:
        text: name or address, in brackets where it contains colons, and a decimal port.
        setting: that it was given by, for the remedy.

    >>> parse_address("127.0.0.1:5050"), parse_address("[::1]:5050")
    (('127.0.0.1', 5050), ('::1', 5050))
    """
    host, _, port = text.rpartition(":")
    scheme, _, place = text.partition("://")
    if place:
        remedy = f"leave {scheme}:// out: {setting}{place.split('/')[0]}"
        raise RuleError("a server's address must be HOST:PORT", got=repr(text), remedy=remedy)
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise RuleError("a server's address must be HOST:PORT", got=repr(text), remedy=f"e.g. {setting}127.0.0.1:5050")
    return host.strip("[]"), int(port)


def show_address(address: tuple[str, int]) -> str:
    """Return an address in the form of :func:`parse_address`.

    >>> show_address(("::1", 5050))
    '[::1]:5050'
    """
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host can only be reached from its own machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_free(address: tuple[str, int]) -> None:
    """Raise unless a server could listen at an address now.

    Args:
        address: host and port; port 0 is any that is free.
    """
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        socket.create_server(address, family=family).close()
    except OSError as error:
        why, remedy = str(error.strerror).partition(" (")[0], "choose another port= or host="
        got = f"{show_address(address)}: {why}"
        raise RuleError("a server must be able to listen at its address", got=got, remedy=remedy) from None
