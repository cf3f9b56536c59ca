"""The README quotes the committed results, and nothing else."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load_script():
    spec = importlib.util.spec_from_file_location(
        "readme_table", ROOT / "benchmarks" / "readme_table.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_holds_the_table_of_the_committed_results():
    script = load_script()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = script.make_table(script.read_results())
    assert "MLRForecaster" in table
    assert script.insert(readme, table) == readme


def test_another_number_in_the_results_would_be_seen():
    script = load_script()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    results = script.read_results()
    results.loc[results["seed"].notna().idxmax(), "mse"] += 0.001
    assert script.insert(readme, script.make_table(results)) != readme
