"""Draw what each score attends to, on two days of the embedded hourly series."""

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from mlrforecast import load_dataset
from mlrforecast.ops import attention_ops
from mlrforecast.ops.matrices import Dense

HOURS, LAGS, HEAD_WIDTH = 48, 4, 8
# Blocks of columns and rank of each level; three blocks are the three series.
LEVELS = ((1, 4), (3, 2), (6, 1))
# From light to dark in one hue: the order survives grey print and every kind of colour blindness.
# What is hidden is hatched, so that it is no shade at all.
SHADES = LinearSegmentedColormap.from_list("weights", ["#e9f1fa", "#6baed6", "#2171b5", "#08204b"])
INK = "#222222"
TITLES = {
    "standard": "standard\nall earlier hours",
    "mlr": "mlr\nranks 4, 2, 2 in blocks of 48, 24, 12",
    "mlr_window": "mlr_window\nrank 4 up to 6 hours, then blocks",
    "sliding_window": "sliding_window\nup to 6 hours before",
    "global_window": "global_window\n4 columns all, 4 up to 6 hours",
    "bilinear": "bilinear\nidentity: all 12 columns",
    "bilinear_mlr": "bilinear_mlr\n1, 3 and 6 blocks of columns",
    "bilinear_btt": "bilinear_btt\nmatrix of full rank",
}


def draw(folder: Path) -> None:
    """Draw one picture of all scores."""
    figure = Figure(figsize=(12, 6.6), dpi=150)
    axes = figure.subplots(2, 4)
    figure.subplots_adjust(left=0.05, right=0.92, top=0.91, bottom=0.08, wspace=0.16, hspace=0.32)
    weights = _weights()
    image = None
    for ax, (name, title) in zip(axes.flat, TITLES.items(), strict=True):
        image = _paint(ax, weights[name])
        ax.set_title(title, fontsize=10, color=INK)
        if ax in axes[:, 0]:
            ax.set_ylabel("query hour")
        if ax in axes[1]:
            ax.set_xlabel("key hour")
    bar = figure.colorbar(image, cax=figure.add_axes((0.94, 0.25, 0.012, 0.5)))
    bar.set_label("weight, as a share of the largest in its row")
    figure.savefig(folder / "scores.png")


def _paint(ax: Axes, weights: Tensor) -> object:
    """Paint the weights of one score, each row by its largest; hatch the pairs never attended."""
    values = (weights / weights.amax(-1, keepdim=True)).numpy()
    ax.set_facecolor("#ffffff")
    hidden = np.ma.masked_where(values > 0, np.zeros_like(values))
    ax.pcolor(hidden, hatch="////", cmap=ListedColormap(["#f2f2f2"]), edgecolor="#bdbdbd", lw=0)
    image = ax.pcolormesh(np.ma.masked_equal(values, 0), cmap=SHADES, vmin=0, vmax=1)
    ax.set(xlim=(0, HOURS), ylim=(HOURS, 0), xticks=range(0, 49, 12), yticks=range(0, 49, 12))
    ax.set_aspect("equal")
    return image


def _weights() -> dict[str, Tensor]:
    """Let each op attend causally to the values of the identity: its weights come out."""
    x = _layer_input()
    width = x.shape[-1]
    generator = torch.Generator().manual_seed(3)
    to_head = torch.linalg.qr(torch.randn(width, HEAD_WIDTH, generator=generator)).Q
    q = k = (x @ to_head)[:, None]
    options: dict[str, dict[str, object]] = {
        "standard": {},
        "mlr": {"ranks": (4, 2, 2), "block_sizes": (None, 24, 12)},
        "mlr_window": {"ranks": (4, 2, 2), "block_sizes": (None, 24, 12), "window": 6},
        "sliding_window": {"window": 6},
        "global_window": {"ranks": (4, 4), "window": 6},
    }
    v = torch.eye(HOURS)[None, None]
    weights = {name: attention_ops[name](q, k, v, causal=True, **o) for name, o in options.items()}
    levels = [torch.randn(p, width // p, r, generator=generator) / 3 for p, r in LEVELS]
    # 3 x 4 rows and columns: the two factors of one block tensor train.
    train = torch.randn(4, 3, 3, generator=generator), torch.randn(3, 4, 4, generator=generator)
    inputs = (x, x, v)
    identity = Dense(torch.eye(width)[None])
    weights["bilinear"] = attention_ops["bilinear"](*inputs, identity, causal=True)
    weights["bilinear_mlr"] = attention_ops["bilinear_mlr"](
        *inputs, levels, levels, num_heads=1, causal=True
    )
    weights["bilinear_btt"] = attention_ops["bilinear_btt"](
        *inputs, *train, num_heads=1, norm_weight=torch.ones(width), causal=True
    )
    return {name: x[0, 0] for name, x in weights.items()}


def _layer_input() -> Tensor:
    """Describe each hour by three series, each at that hour and the three before: (1, T, 12)."""
    table = load_dataset("synthetic").train[["load_1", "load_2", "load_3"]]
    values = torch.tensor(table.to_numpy()[: HOURS + LAGS - 1]).float()
    values = (values - values.mean(0)) / values.std(0)
    return values.unfold(0, LAGS, 1).flatten(1)[None]
