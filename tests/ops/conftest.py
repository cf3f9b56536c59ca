import pytest


@pytest.fixture
def own_errors(request: pytest.FixtureRequest) -> None:
    """Ask for it where wrong types or shapes go in: the shape checker would speak first."""
    if request.config.getoption("--jaxtyping-packages", default=None):
        pytest.skip("tests our own message, and the shape checker speaks first")
