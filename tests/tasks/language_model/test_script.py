"""The script that makes the corpus of the benchmarks."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "text_corpus.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_makes_a_corpus_and_prints_a_table(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number in range(60):
        (tmp_path / "source" / f"{number}.pod").write_text(f"Caf\u00e9 {number}\n")
    source, out = tmp_path / "source", tmp_path / "corpus"
    options = (source, "--out", out, "--pattern", "*.pod", "--validation-share", "0.3")
    done = run(*options)
    assert done.returncode == 0, done.stderr
    table = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    assert table["sources"].strip() == "source"
    assert table["dropped characters"].strip() == "60"
    assert (out / "corpus.json").is_file()
    again = run(*options)
    assert again.returncode == 2
    assert "`folder` holds a corpus already" in again.stderr
    assert "Traceback" not in again.stderr
