"""Draw a sweep: its trials, how they learnt, and what the score rests on."""

from pathlib import Path

from matplotlib import pyplot as plt

from mlrforecast import MLRForecaster, load_dataset
from mlrforecast.tuning import tune

HORIZON = 24


def draw(folder: Path) -> None:
    """Search the default space on the embedded series, without its test rows, and draw that."""
    dataset = load_dataset("synthetic")
    result = tune(
        MLRForecaster(HORIZON, max_steps=60, accelerator="cpu", progress=False),
        dataset.targets[: dataset.splits["test"].start],
        num_samples=32,
        folds=2,
        executor="local",
        max_concurrent=2,
        refit=False,
        progress=False,
    )
    figure = result.plot()
    figure.savefig(folder / "sweep.png", dpi=90, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(__file__).parent / "img")
