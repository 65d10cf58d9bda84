"""Both ways to do the work of an index and of an evaluation: numpy, and the compiled kernels."""

from collections.abc import Iterator

import pytest

from dmuh.index.kernel_use import only


@pytest.fixture(scope="module", autouse=True, params=["numpy", "kernels"])
def route(request: pytest.FixtureRequest) -> Iterator[None]:
    """All tests of a module that imports this are run twice."""
    with only(compiled=request.param == "kernels"):
        yield
