import pytest

from .sample import sample_page


@pytest.fixture(scope="session")
def sample() -> str:
    return sample_page()
