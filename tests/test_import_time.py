"""``import mlrforecast`` is cheap, and optional extras are never imported unasked."""

import subprocess
import sys

HEAVY = ["torch", "pandas", "numpy", "lightning", "sklearn", "matplotlib", "scipy"]
# Not transformers and its huggingface_hub: Lightning imports them, by torchmetrics, wherever they
# are installed.
OPTIONAL = ["chronos", "datasets", "fev", "gluonts", "ray"]
LIMIT_S = 0.3


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_top_level_is_imported_in_no_time_and_brings_nothing_heavy() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import mlrforecast; "
        "took = time.perf_counter() - start; mlrforecast.__version__; "
        f"print(took, *[name for name in {HEAVY} if name in sys.modules])"
    )
    # The best of three: the first one may read from a cold disk.
    took, *heavy = min((run_python(code).split() for _ in range(3)), key=lambda out: float(out[0]))
    assert heavy == []
    assert float(took) < LIMIT_S


def test_no_module_imports_an_optional_extra_or_prints() -> None:
    code = f"""
import pkgutil, sys, threading
for name in {OPTIONAL}:
    sys.modules[name] = None  # importing it now raises ImportError
import mlrforecast
threads = threading.active_count()
for module in pkgutil.walk_packages(mlrforecast.__path__, "mlrforecast."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
assert threading.active_count() == threads, "an import starts a thread"
"""
    assert run_python(code) == ""
