"""The script that makes the corpus of the benchmarks."""

import sys
from pathlib import Path

import pytest

from benchmarks import text_corpus


def test_it_makes_a_corpus_and_prints_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").mkdir()
    for number in range(60):
        (tmp_path / "source" / f"{number}.pod").write_text(f"Caf\u00e9 {number}\n")
    source, out = tmp_path / "source", tmp_path / "corpus"
    options = (source, "--out", out, "--pattern", "*.pod", "--validation-share", "0.3")
    monkeypatch.setattr(sys, "argv", ["text_corpus.py", *map(str, options)])
    text_corpus.main()
    table = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert table["sources"].strip() == "source"
    assert table["dropped characters"].strip() == "60"
    assert (out / "corpus.json").is_file()
    with pytest.raises(SystemExit) as ended:
        text_corpus.main()
    assert ended.value.code == 2
    assert "`folder` holds a corpus already" in capsys.readouterr().err
