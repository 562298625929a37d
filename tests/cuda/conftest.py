"""The children of these tests find a stub of CUDA (tests/cuda_stub/torch_cuda.py)."""

import cuda_stub
import pytest
import stub_driver


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if not cuda_stub.is_possible():
        pytest.skip("there is no g++, or this torch has CUDA itself")
    drivers = stub_driver.build(tmp_path_factory.mktemp("drivers") / "stubs")
    library = cuda_stub.build(tmp_path_factory.mktemp("torch"))
    return cuda_stub.settings(library, drivers.folder)


@pytest.fixture
def environment(environment: dict[str, str], stubs: dict[str, str]) -> dict[str, str]:
    return {**environment, **stubs}
