"""A local Ray and a cluster for the tests of sweeps, each started once for a process of tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from mlrforecast._core.cluster import connected
from tests.ray_cluster import RayCluster, ray_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """A head and two workers of one CPU each."""
    with ray_cluster() as started:
        yield started


@pytest.fixture(scope="module")
def local_ray() -> Iterator[Any]:
    """A Ray of this machine that the process is connected to, from here to the end of the file."""
    with connected(num_cpus=2) as ray:
        yield ray
