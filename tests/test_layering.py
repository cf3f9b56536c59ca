"""Imports point down, private modules stay private, and functions do not import."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "mlrforecast"

# A part imports only from lower numbers; parts of one number never import each other.
LEVELS = {
    "_core": 0,
    "_version": -1,
    "plots": 0,
    "baselines": 1,
    "data": 1,
    "metrics": 1,
    "ops": 1,
    "nn": 2,
    "models": 3,
    "evaluation": 4,
    "training": 4,
    "estimators": 5,
    "integrations": 6,
    "pretraining": 6,
    "tasks": 6,
    "testing": 6,
    "tuning": 6,
    "benchmark": 7,
    "cli": 8,
    "__main__": 9,
}

# (importing module, imported part) -> why it may look up. The conversions of the estimator to
# other libraries' forms will stand here; nothing else.
UPWARD: dict[tuple[str, str], str] = {
    (
        "mlrforecast.estimators._exchange",
        "integrations",
    ): "a model goes to a hub, to GluonTS or Chronos",
    ("mlrforecast.estimators._training", "integrations"): "a fit goes to a cluster",
}

# (module or package, imported root) -> why the import waits inside a function.
INSIDE_FUNCTIONS: dict[tuple[str, str], str] = {
    ("mlrforecast._core.cluster", "ray"): "an extra",
    ("mlrforecast.cli", "mlrforecast"): "--help and --version answer without loading torch",
    ("mlrforecast.cli._tables", "pyarrow"): "an extra",
    ("mlrforecast.data._checks", "platformdirs"): "only a download needs it",
    ("mlrforecast.data._files", "mlrforecast"): "only a download needs requests",
    ("mlrforecast.data._pieces", "pyarrow"): "an extra",
    ("mlrforecast.data.datasets", "mlrforecast"): "only a picture needs it",
    ("mlrforecast.data._repository", "gluonts"): "an extra",
    ("mlrforecast.data.gluonts", "gluonts"): "an extra",
    ("mlrforecast.estimators._exchange", "mlrforecast"): "only a model that leaves needs it",
    ("mlrforecast.estimators._export", "onnxscript"): "an extra",
    ("mlrforecast.estimators._training", "mlrforecast"): "only a fit on a cluster needs it",
    ("mlrforecast.integrations.chronos", "chronos"): "an extra",
    ("mlrforecast.integrations.chronos", "transformers"): "an extra",
    ("mlrforecast.integrations.hub", "huggingface_hub"): "an extra",
    ("mlrforecast.pretraining.arrow", "pyarrow"): "an extra",
    ("mlrforecast.integrations.ray", "fsspec"): "an extra",
    ("mlrforecast.integrations.ray", "pyarrow"): "an extra",
    ("mlrforecast.integrations.ray", "ray"): "an extra",
    ("mlrforecast.ops.attention", "mlrforecast"): "only a call on a GPU needs Triton's kernels",
    ("mlrforecast.ops.attention", "triton"): "only a call on a GPU needs it",
    ("mlrforecast.ops.levels", "matplotlib"): "only a picture needs it",
    ("mlrforecast.ops.levels", "pandas"): "only a calendar needs it",
    ("mlrforecast.tasks.language_model.hub", "datasets"): "an extra",
    ("mlrforecast.tuning", "pyarrow"): "an extra",
    ("mlrforecast.tuning", "ray"): "an extra",
    ("mlrforecast.tuning.tuner", "mlrforecast"): "only a sweep on Ray needs it",
}

# Modules that an extra brings: never imported at the top of a module.
OPTIONAL = {
    "chronos",
    "datasets",
    "fev",
    "gluonts",
    "huggingface_hub",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "ray",
    "transformers",
    "triton",
}


# Modules that only functions import, and that are made of the optional module throughout.
MADE_OF: set[tuple[str, str]] = {
    ("mlrforecast.ops.attention._decode_kernels", "triton"),
    ("mlrforecast.ops.attention._hopper_kernel", "triton"),
    ("mlrforecast.ops.attention._triton_kernels", "triton"),
}


@dataclass(frozen=True)
class Import:
    """One imported module, and whether a function does it."""

    target: str
    line: int
    in_function: bool

    @property
    def root(self) -> str:
        return self.target.split(".")[0]

    @property
    def part(self) -> str:
        """The part of this package that is imported, or "" for the package itself."""
        return [*self.target.split("."), ""][1]


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(source: str, module: str, *, is_package: bool = False) -> Iterator[Import]:
    """Every import of ``source``, by statement or by ``import_module("...")``, names resolved."""

    def visit(node: ast.AST, in_function: bool) -> Iterator[Import]:
        for target in _targets(node, module, is_package):
            yield Import(target, node.lineno, in_function)  # type: ignore[attr-defined]
        inside = in_function or isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        )
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(ast.parse(source), in_function=False)


def _targets(node: ast.AST, module: str, is_package: bool) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            up = module.split(".")[: len(module.split(".")) - node.level + is_package]
            base = ".".join([*up, base] if base else up)
        # `from mlrforecast import ops` imports the part `ops`.
        return [f"{base}.{a.name}" if base == "mlrforecast" else base for a in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        value = node.args[0].value
        if name in {"import_module", "import_optional", "__import__"} and isinstance(value, str):
            return [value]
    return []


def complaints(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What is wrong with the imports of one module, in words."""
    own = [*module.split("."), ""][1]
    found = []
    for item in imports_of(source, module, is_package=is_package):
        where = f"{module}:{item.line} imports {item.target}"
        if item.root == "mlrforecast":
            found += [f"{where}: {rule}" for rule in _broken_inside(item, module, own)]
        elif item.root == "pytorch_lightning":
            found.append(f"{where}: only lightning.pytorch")
        elif item.root in OPTIONAL and not item.in_function and (module, item.root) not in MADE_OF:
            found.append(f"{where}: an optional module at the top")
        if item.in_function and not _listed(module, item.root):
            found.append(f"{where}: inside a function")
    return found


def _broken_inside(item: Import, module: str, own: str) -> Iterator[str]:
    if item.part == "":
        if own:
            yield "the top level, which imports every part"
        return
    if item.part.startswith("__version"):
        return
    if item.part not in LEVELS:
        yield f"add {item.part!r} to LEVELS"
    elif _points_up(own, item.part) and (module, item.part) not in UPWARD:
        yield f"level {LEVELS[own]} must not import level {LEVELS[item.part]}"
    inner = item.target.split(".")[2:]
    if item.part not in (own, "_core") and any(name.startswith("_") for name in inner):
        yield "a private module of another part"


def _points_up(own: str, part: str) -> bool:
    return own not in ("", part) and LEVELS[part] >= LEVELS[own]


def _listed(module: str, root: str) -> bool:
    return any(
        root == allowed and (module == home or module.startswith(f"{home}."))
        for home, allowed in INSIDE_FUNCTIONS
    )


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_of_each_module(path: Path) -> None:
    source, module = path.read_text(encoding="utf-8"), module_name(path)
    assert not complaints(source, module, is_package=path.name == "__init__.py")


def test_every_part_has_a_level_and_parts_are_really_read() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py"}
    parts |= {path.name for path in PACKAGE.iterdir() if list(path.glob("*.py"))}
    assert parts - {"__init__"} <= LEVELS.keys()
    assert len(FILES) >= len(parts) > 3


@pytest.mark.parametrize("listed", [UPWARD, INSIDE_FUNCTIONS], ids=["upward", "inside functions"])
def test_no_listed_exception_is_stale(listed: dict[tuple[str, str], str]) -> None:
    sources = {module_name(path): path for path in FILES}
    for home, target in listed:
        seen = [
            item.root if listed is INSIDE_FUNCTIONS else item.part
            for module, path in sources.items()
            if module == home or module.startswith(f"{home}.")
            for item in imports_of(
                path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py"
            )
            if listed is UPWARD or item.in_function
        ]
        assert target in seen, f"({home}, {target}) is listed and not used"
    assert all(listed.values()), "every exception carries its reason"


@pytest.mark.parametrize(
    ("module", "source", "rule"),
    [
        (
            "mlrforecast.ops.x",
            "from mlrforecast.nn import Block",
            "level 1 must not import level 2",
        ),
        ("mlrforecast.ops.x", "import mlrforecast.data.panel", "level 1 must not import level 1"),
        ("mlrforecast.ops.x", "from mlrforecast import models", "level 1 must not import level 3"),
        ("mlrforecast.ops.x", "from ..nn import Block", "level 1 must not import level 2"),
        ("mlrforecast.nn.x", "if TYPE_CHECKING:\n import mlrforecast.cli", "import level 8"),
        ("mlrforecast.nn.x", "def f():\n import mlrforecast.models", "inside a function"),
        ("mlrforecast.nn.x", "def f():\n import mlrforecast.models", "import level 3"),
        ("mlrforecast.nn.x", "import_module('mlrforecast.estimators')", "import level 5"),
        ("mlrforecast.nn.x", "from mlrforecast.ops._blocks import f", "a private module"),
        ("mlrforecast.nn.x", "import mlrforecast", "the top level"),
        ("mlrforecast.nn.x", "import mlrforecast.layers", "add 'layers' to LEVELS"),
        ("mlrforecast.nn.x", "import ray.tune", "an optional module at the top"),
        ("mlrforecast.nn.x", "f = lambda: __import__('json')", "inside a function"),
        ("mlrforecast.nn.x", "import pytorch_lightning", "only lightning.pytorch"),
    ],
)
def test_planted_imports_are_caught(module: str, source: str, rule: str) -> None:
    assert any(rule in complaint for complaint in complaints(source, module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("mlrforecast.nn.x", "from mlrforecast.ops import mlr_attention\nimport torch"),
        ("mlrforecast.nn.x", "from mlrforecast._core.errors import DataError"),
        ("mlrforecast.nn.x", "from mlrforecast._version import __version__"),
        ("mlrforecast.nn.x", "from .norm import RMSNorm\nfrom ._blocks import f"),
        ("mlrforecast.nn.x", "from mlrforecast.nn._blocks import f"),
    ],
)
def test_good_imports_pass(module: str, source: str) -> None:
    assert complaints(source, module) == []
