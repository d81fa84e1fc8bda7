import pytest

from privcirnet.errors import RuleError
from privcirnet.he.engines import cleartext, interface, kernel, kernel_client, tenseal
from tests.he.engines.pairs import PARAMETERS, pair


@pytest.mark.parametrize("kind", interface.ENGINES)
def test_keys_for_other_rotations_are_refused(kind: str) -> None:
    client, server, _ = pair(kind)
    few = client.public_keys([1])
    for message, steps in ((few, [1, 2]), (few, []), (b"", [1]), (few[:-1], [1]), (few + b"\0", [1])):
        with pytest.raises(RuleError, match="keys must"):
            server.load_keys(message, steps)


def test_unknown_engine() -> None:
    for make in (interface.client_engine, interface.server_engine):
        with pytest.raises(RuleError, match="got 'plain'; use one of kernel, tenseal, cleartext"):
            make("plain", PARAMETERS)


def test_the_compiled_engine_is_used() -> None:
    assert type(interface.server_engine("kernel", PARAMETERS)) is kernel.KernelServer
    assert type(interface.client_engine("kernel", PARAMETERS)) is kernel_client.KernelClient


def test_engines_have_every_method_of_the_interface() -> None:
    for role, modules in (("Client", (cleartext, tenseal, kernel_client)), ("Server", (cleartext, tenseal, kernel))):
        methods = {name for name in vars(getattr(interface, f"{role}Engine")) if not name.startswith("_")}
        for module in modules:
            name = module.__name__.split(".")[-1].removesuffix("_client").capitalize()
            assert methods <= set(dir(getattr(module, f"{name}{role}"))) | {
                "parameters",
                "counts",
            }
