"""Threads of the matrix products. After a product they spin for some 30 ms and take the cores from what comes next."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any, cast

from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]


def one_thread() -> AbstractContextManager[object]:
    """Matrix products inside run on the calling thread alone: the small ones gain nothing from others."""
    return _blas().limit(limits=1)


@cache
def _blas() -> Any:
    return cast(Any, ThreadpoolController()).select(user_api="blas")
