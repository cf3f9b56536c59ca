"""README and docs: their code runs, their links lead somewhere, their size is bounded."""

import pkgutil
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import mlrforecast
import mlrforecast.tasks
from mlrforecast._core.axes import AXES
from mlrforecast.nn import attentions

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(
            page
            for folder in ("benchmarks", "datasets", "docs", "mlrforecast")
            for page in (ROOT / folder).rglob("*.md")
        ),
    ]
)
README_LINES = 150
SKIP = re.compile(r"^<!-- skip-test:\s*(.*?)\s*-->$")
FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\S*)")
# Fences that hold no Python; every other one must be spelt `python`, so that none escapes.
NOT_PYTHON = {"", "bash", "bibtex", "console", "csv", "json", "math", "text", "toml", "yaml"}


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    line: int
    code: str
    skip_reason: str | None


def blocks(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        if not (opened := FENCE.match(lines[number])):
            number += 1
            continue
        end = number + 1
        while end < len(lines) and lines[end].strip() != opened[1]:
            end += 1
        skip = SKIP.match(lines[number - 1].strip()) if number else None
        code = textwrap.dedent("\n".join(lines[number + 1 : end]))
        yield Block(opened[2], number + 1, code, skip[1] if skip else None)
        number = end + 1


def execute(text: str, name: str) -> int:
    """Run the Python blocks of one page in order, in one namespace; give how many ran."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    count = 0
    for block in blocks(text):
        if block.language != "python" or block.skip_reason is not None:
            continue
        # Empty lines before the code: a traceback names the line of the page.
        code = "\n" * block.line + block.code
        exec(compile(code, name, "exec"), namespace)
        count += 1
    return count


def prose(text: str) -> str:
    """The page without its fenced blocks and without code spans."""
    lines, fence = [], ""
    for line in text.splitlines():
        if opened := FENCE.match(line):
            fence = "" if fence and line.strip() == fence else fence or opened[1]
        elif not fence:
            lines.append(re.sub(r"`[^`]*`", "", line))
    return "\n".join(lines)


def targets(text: str) -> list[str]:
    """What the page links to or shows, without addresses of the web."""
    found = re.findall(r"\]\(\s*<?([^)\s>]+)", prose(text))
    found += re.findall(r"""(?:src|href|srcset)=["']([^"']+)["']""", prose(text))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(text: str) -> set[str]:
    """The anchors of the headings, spelt as on a repository's page."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken(text: str, folder: Path) -> list[str]:
    """The links of a page in ``folder`` that lead nowhere."""
    found = []
    for link in targets(text):
        path, _, anchor = link.partition("#")
        target = folder / path if path else None
        if target is not None and not target.exists():
            found.append(link)
        elif anchor and (target is None or target.suffix == ".md"):
            page = text if target is None else target.read_text(encoding="utf-8")
            if anchor not in anchors(page):
                found.append(link)
    return found


def absolute_paths(text: str) -> list[str]:
    """Paths of somebody's machine; those that every Unix has may stand."""
    found = re.findall(r"(?<![\w:/.$)}\]*~-])/[A-Za-z_]\w*/[\w./-]*", text)
    return [path for path in found if not path.startswith(("/dev/", "/usr/bin/", "/path/to/"))]


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# A reader's own modules draw their weights from the global generator.
@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_python_of_each_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # A page may register a score, for itself only.
    monkeypatch.setattr(attentions, "_entries", dict(attentions._entries))
    execute(page.read_text(encoding="utf-8"), str(page))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_each_fence_is_known_and_each_skip_has_a_reason(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        known = block.language in NOT_PYTHON | {"python"} or block.language.startswith("{")
        assert known, f"line {block.line}: {block.language!r}"
        assert not re.search("python", block.language.removeprefix("python"))
        assert block.skip_reason != "", f"line {block.line}: skipped without a reason"
        assert block.language in ("python", "") or ">>> " not in block.code, f"line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_each_link_leads_somewhere_and_no_machine_is_named(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert broken(text, page.parent) == []
    assert absolute_paths(text) == []


def test_the_readme_is_short_and_has_code_that_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= README_LINES
    assert any(b.language == "python" and b.skip_reason is None for b in blocks(text))
    for command in ("make demo", "make test"):
        assert command in text


def test_the_notation_page_is_the_one_that_the_legend_gives() -> None:
    sys.path.insert(0, str(DOCS))
    try:
        from notation import render
    finally:
        sys.path.remove(str(DOCS))
    page = (DOCS / "notation.md").read_text(encoding="utf-8")
    assert page == render(), "run: python docs/notation.py"
    for letter, meaning in AXES.items():
        assert f"| `{letter}` | {meaning} |" in page


def test_sphinx_builds_the_pages_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += ["-d", str(tmp_path / "doctrees"), str(DOCS), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "index.html").is_file()


def test_the_reference_lists_every_public_package() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"automodule:: (\S+)", text)
    found = [
        module.name
        for package in (mlrforecast, mlrforecast.tasks)
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    ]
    assert listed == sorted(listed)
    assert set(listed) == {name for name in found if "._" not in name} - {"mlrforecast.cli"}


PLANTED = """# A page

```python
x = 1
```

<!-- skip-test: needs the internet -->
```python
raise SystemExit
```

1. In a list:

   ```python
   assert x == {value}
   ```
"""


def test_a_planted_block_that_raises_is_caught_with_its_line() -> None:
    assert execute(PLANTED.format(value=1), "page.md") == 2
    with pytest.raises(AssertionError) as caught:
        execute(PLANTED.format(value=2), "page.md")
    assert caught.traceback[-1].lineno == 14
    reasons = [block.skip_reason for block in blocks(PLANTED)]
    assert reasons == [None, "needs the internet", None]


@pytest.mark.filterwarnings("error")
def test_a_planted_warning_is_caught() -> None:
    with pytest.raises(UserWarning, match="old"):
        execute("```python\nimport warnings\nwarnings.warn('old')\n```", "page.md")


def test_planted_links_and_paths_are_caught(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A title, here\n")
    text = """# Top
[a](there.md) [b](gone.md) ![c](img/gone.png) <img src="gone.svg"> [d](https://x.org/a.md)
[e](there.md#a-title-here) [f](there.md#gone) [g](#top) [h](#gone) `[i](code.md)`
"""
    assert broken(text, tmp_path) == [
        "gone.md",
        "img/gone.png",
        "there.md#gone",
        "#gone",
        "gone.svg",
    ]
    somewhere = "/" + "home/someone/data"
    assert absolute_paths(f"see {somewhere} and https://x.org/home/a/b or a/b/c") == [somewhere]
