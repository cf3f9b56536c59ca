"""Speed of the attention kernels, from the committed results of ``benchmarks.kernels``."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "kernels"
COLOURS = {64: "#E69F00", 128: "#0072B2"}
PASSES = {"fwd": ("forward", "-", "o"), "fwdbwd": ("forward and backward", "--", "s")}
RANKS = {"32|32": "#009E73", "32|16|16": "#CC79A7", "16|16|16|16": "#56B4E9"}


def draw(folder: Path) -> None:
    """Draw what the committed benchmark measured."""
    table = measured()
    for name, picture in {
        "kernels_ratio": _ratios,
        "kernels_decode": _decoding,
        "kernels_roofline": _roofline,
    }.items():
        figure = picture(table)
        figure.savefig(folder / f"{name}.png", dpi=110)
        plt.close(figure)


def measured() -> pd.DataFrame:
    """Return the least of the committed times of each problem, and the least of its baseline.

    Standard attention knows no ranks, and ``auto`` takes ``triton``: one problem has several times
    in a run, and other work on the machine can only lengthen one.
    """
    table = pd.read_csv(RESULTS / "cuda.csv")
    size = ["T", "head_dim", "causal", "batch_heads", "pass", "dtype"]
    table["baseline_ms"] = table.groupby(size, dropna=False)["baseline_ms"].transform("min")
    table["backend"] = table["backend"].replace("auto", "triton")
    table["ms"] = table.groupby([*size, "ranks", "backend"], dropna=False)["ms"].transform("min")
    table = table.drop_duplicates([*size, "ranks", "backend"])
    return table.assign(ratio=table["baseline_ms"] / table["ms"])


def _ratios(table: pd.DataFrame) -> plt.Figure:
    """Show how many times as fast as PyTorch's attention MLR attention is, against the length."""
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), sharey=True, layout="constrained")
    table = table[(table["backend"] == "triton") & table["causal"].eq(True)]
    for head_dim, colour in COLOURS.items():
        ranks = "|".join([str(head_dim // 8)] * 8)
        _lines(axes[0], table[table["ranks"] == ranks], colour, f"{head_dim} columns, ")
    _steps(axes[0], [2**power for power in range(10, 16)])
    _steps(axes[1], [256, 512, 1024, 2048])
    axes[0].set_title("8 equal levels", loc="left", fontsize=10)
    for ranks, colour in RANKS.items():
        here = table[(table["ranks"] == ranks) & (table["batch_heads"] * table["T"] == 2**20)]
        _lines(axes[1], here[here["T"] <= 2048], colour, f"ranks {ranks.replace('|', ', ')}, ")
    axes[1].set_title("few levels of a head of 64 columns", loc="left", fontsize=10)
    axes[0].set_ylabel("time of standard attention / time of MLR")
    return figure


def _lines(axis: Axes, table: pd.DataFrame, colour: str, name: str) -> None:
    """Draw the ratios of each pass against the length."""
    for one_pass, (label, style, marker) in PASSES.items():
        here = table[table["pass"] == one_pass].sort_values("T")
        axis.plot(here["T"], here["ratio"], style, color=colour, marker=marker, label=name + label)
    axis.axhline(1, color="#7F7F7F", linewidth=1)
    axis.legend(frameon=False, fontsize=8)


def _steps(axis: Axes, lengths: Sequence[int]) -> None:
    """Label a logarithmic axis of steps."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(lengths, [str(length) for length in lengths])
    axis.minorticks_off()
    axis.set_xlabel("steps T")
    axis.spines[["top", "right"]].set_visible(False)


def _decoding(table: pd.DataFrame) -> plt.Figure:
    """Show how many times as fast one step of a generation is."""
    figure, axis = plt.subplots(figsize=(9.5, 3.6), layout="constrained")
    here = table[table["pass"] == "decode"].sort_values(["head_dim", "ranks", "T", "batch_heads"])
    heads = 2048 // here["head_dim"]
    sizes = ["1 request" if one else "chip full" for one in here["batch_heads"] == heads]
    levels = ["8 equal" if len(set(r.split("|"))) == 1 else "steep" for r in here["ranks"]]
    names = [
        f"{int(d)} columns, {level}, T = {steps}, {size}"
        for d, level, steps, size in zip(here["head_dim"], levels, here["T"], sizes, strict=True)
    ]
    colours = [COLOURS[d] for d in here["head_dim"]]
    axis.barh(names, here["ratio"], color=colours)
    axis.axvline(1, color="#7F7F7F", linewidth=1)
    axis.invert_yaxis()
    axis.tick_params(labelsize=8)
    axis.set_xlabel("time of standard attention / time of MLR, one step of a generation")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _roofline(table: pd.DataFrame) -> plt.Figure:
    """Show the rate of the multiply-adds that are really done, under what the card can do."""
    figure, axis = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    here = table[(table["backend"] == "triton") & table["causal"] & (table["pass"] == "fwd")].copy()
    for head_dim, colour in COLOURS.items():
        rank = head_dim // 8
        one = here[here["ranks"] == "|".join([str(rank)] * 8)].sort_values("T")
        # Half of the pairs of a causal square; a pair that shares m levels reads m ranks.
        columns = sum(rank * 2.0**-lvl for lvl in range(8))
        work = 2 * (columns + head_dim) * one["T"] ** 2 / 2 * one["batch_heads"]
        axis.plot(
            one["T"],
            work / one["ms"] / 1e9,
            marker="o",
            color=colour,
            label=f"MLR, {head_dim} columns, 8 equal levels",
        )
        whole = 4 * head_dim * one["T"] ** 2 / 2 * one["batch_heads"]
        axis.plot(
            one["T"],
            whole / one["baseline_ms"] / 1e9,
            "--",
            marker="s",
            color=colour,
            label=f"standard, {head_dim} columns",
        )
    matmul = table[table["pass"] == "matmul"]
    rate = float((2 * matmul["T"] ** 3 / matmul["ms"] / 1e9).iloc[0])
    axis.axhline(rate, color="#7F7F7F", label="a matrix product of 8192 x 8192")
    _steps(axis, [2**power for power in range(10, 16)])
    axis.set_xlim(2**10 * 0.9, 2**15 * 1.1)
    axis.set_ylabel("TFLOP/s, forward")
    axis.set_ylim(0)
    axis.legend(frameon=False, fontsize=8)
    return figure
