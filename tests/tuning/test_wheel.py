"""A sweep on nodes that have Ray and torch, but not the package: it travels as a wheel."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.ray_cluster import REPOSITORY, ray_cluster

# The folder of a driver is on the path of its workers, so this one runs elsewhere.
DRIVER = """
import sys
from mlrforecast.tuning import tune
from tests.tuning.small import forecaster, frame

address, storage, *wheel = sys.argv[1:]
result = tune(
    forecaster(), frame(), {"dropout": [0.0]}, num_samples=1, folds=1, windows=3, refit=False,
    progress=False, max_failures=0, address=address, storage_path=storage,
    runtime_env={"py_modules": wheel} if wheel else None,
)
print(*result.trials["status"])
"""


@pytest.mark.long
def test_nodes_without_the_package_take_it_as_a_wheel(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=True)
    packages = next((tmp_path / "bare" / "lib").glob("python*")) / "site-packages"
    # Files that name other folders, as an editable install has, are not followed from here.
    (packages / "rest.pth").write_text(sysconfig.get_path("purelib"))
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    driver = tmp_path / "driver" / "driver.py"
    driver.parent.mkdir()
    driver.write_text(DRIVER)

    def run(address: str, name: str, *wheels: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(driver), address, str(tmp_path / name), *wheels],
            cwd=driver.parent,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "RAY_AUTH_MODE": "disabled"},
            capture_output=True,
            text=True,
        )

    python = str(tmp_path / "bare" / "bin" / "python")
    with ray_cluster(workers=1, python=python, path=None) as cluster:
        for name, address in (("direct", cluster.address), ("client", cluster.client_address)):
            done = run(address, name, str(wheel))
            assert done.stdout.split() == ["finished"], done.stderr
        without = run(cluster.address, "without")
        assert without.returncode
        assert "No trial finished" in without.stderr
