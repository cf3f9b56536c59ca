"""What a fitted forecaster is, in a few lines: its data, network, training and calibration."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from mlrforecast.data import CovariateEncoding
from mlrforecast.estimators._attention import levels_of, spans_of, steps_of, window_of_coarsest
from mlrforecast.models import EncoderForecaster, count_flops
from mlrforecast.nn import StructuredAttention

_STYLE = (
    "border-collapse:collapse;margin:0.5em 0;font-family:monospace;font-size:0.9em;color:inherit"
)
_CELL = "text-align:left;vertical-align:top;padding:1px 1.2em 1px 0;border:0"
_SHOWN = 6


@dataclass(frozen=True, eq=False)
class Summary:
    """Facts about a fitted forecaster, in sections; it shows itself as a table.

    Parameters
    ----------
    sections : mapping of str to mapping of str to str
        Name of a section -> name of a fact -> the fact.

    Examples
    --------
    >>> Summary({"data": {"series": "3 columns", "frequency": "h"}})
    data
      series     3 columns
      frequency  h
    """

    sections: Mapping[str, Mapping[str, str]]

    def __repr__(self) -> str:
        width = max((len(name) for facts in self.sections.values() for name in facts), default=0)
        lines: list[str] = []
        for section, facts in self.sections.items():
            lines.append(section)
            for name, fact in facts.items():
                first, *others = fact.split("\n")
                lines.append(f"  {name:<{width}}  {first}")
                lines += [f"  {'':<{width}}  {other}" for other in others]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows: list[str] = []
        for section, facts in self.sections.items():
            rows.append(
                f'<tr><th colspan="2" scope="rowgroup" style="{_CELL};padding-top:0.5em">'
                f"{escape(section)}</th></tr>"
            )
            for name, fact in facts.items():
                shown = escape(fact).replace("\n", "<br>")
                rows.append(
                    f'<tr><th scope="row" style="{_CELL};font-weight:normal">{escape(name)}</th>'
                    f'<td style="{_CELL}">{shown}</td></tr>'
                )
        return f'<table style="{_STYLE}">{"".join(rows)}</table>'


def summarise(forecaster: Any) -> Summary:
    """Return what is worth knowing of a fitted MLRForecaster."""
    sections = {
        "data": _data(forecaster),
        "network": _network(forecaster.model_),
        "training": _training(forecaster),
        "calibration": _calibration(getattr(forecaster, "calibration_", None)),
    }
    return Summary({name: dict(facts) for name, facts in sections.items()})


def _data(forecaster: Any) -> Iterator[tuple[str, str]]:
    """Yield facts about the frame of ``fit``."""
    context = forecaster.context_
    if context is None:
        yield "series", "not saved with the model"
    elif context.layout.form == "long":
        yield "series", _counted(len(context), "item")
    else:
        names = _named(context.labels) if context.layout.form == "wide" else ""
        yield "series", _counted(context.num_channels, "column") + (f": {names}" if names else "")
    freq = forecaster.freq_
    yield "frequency", f"{freq}, a season of {_counted(forecaster.season_length_, 'step')}"
    encoding: CovariateEncoding = forecaster.encoding_
    for role in ("past", "known", "static"):
        if columns := getattr(encoding, role):
            yield f"{role} covariates", _named(column.name for column in columns)
    yield "calendar", ", ".join(encoding.cycles) or "not read"


def _network(model: EncoderForecaster) -> Iterator[tuple[str, str]]:
    """Yield facts about the network."""
    config = model.config
    yield (
        "forecast",
        f"{_counted(config.prediction_length, 'step')} from {config.context_length:,}",
    )
    length = model.embedding.num_tokens
    patches = f"{_counted(length, 'token')} of {_counted(config.patch_length, 'step')}"
    if config.patch_stride != config.patch_length:
        patches += f", {_counted(config.patch_stride, 'step')} apart"
    yield "tokens", patches
    layers = [module for module in model.modules() if isinstance(module, StructuredAttention)]
    if layers:
        names = list(dict.fromkeys(layer.attention for layer in layers))
        yield "attention", f"{', '.join(names)} in {_counted(len(layers), 'layer')}"
    else:
        yield "backbone", type(model.backbone).__name__
    leveled = next((layer for layer in layers if levels_of(layer, length) is not None), None)
    if leveled is not None:
        yield "levels", "\n".join(_levels(leveled, config, length))
    yield "parameters", f"{sum(parameter.numel() for parameter in model.parameters()):,}"
    if (flops := _flops(model)) is not None:
        yield "FLOPs", f"{flops:,} for a forecast of one series"


def _levels(layer: StructuredAttention, config: Any, length: int) -> Iterator[str]:
    """Yield a line for each level of a layer."""
    levels = levels_of(layer, length)
    assert levels is not None
    window = window_of_coarsest(layer, length)
    for number, (rank, span) in enumerate(
        zip(levels.ranks, spans_of(layer, length), strict=True), start=1
    ):
        what = "window" if number == 1 and window is not None else "blocks"
        steps = _counted(steps_of(config, span), "step")
        reach = f"all {steps}" if span == length else f"{what} of {steps}"
        yield f"{number}: rank {rank}, {reach}"


def _flops(model: nn.Module) -> int | None:
    """Return the FLOPs of a forecast by the paper's rules, None for a backbone of unknown cost."""
    try:
        return count_flops(model).total
    except (NotImplementedError, TypeError):
        return None


def _training(forecaster: Any) -> Iterator[tuple[str, str]]:
    """Yield facts about the training."""
    config = forecaster.model_.config
    loss = config.loss
    if loss == "quantile":
        loss += f", levels {', '.join(f'{level:g}' for level in config.quantile_levels)}"
    yield "loss", loss
    if (steps := getattr(forecaster, "num_steps_", None)) is not None:
        yield "steps", f"{steps:,}"


def _calibration(calibration: Any) -> Iterator[tuple[str, str]]:
    """Yield facts about the calibration, if there is one."""
    if calibration is None:
        yield "method", "none"
        return
    yield "method", calibration.method
    yield "windows", f"{calibration.num_windows:,}"
    yield "coverage", "\n".join(_coverage(calibration.coverage))


def _coverage(table: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each nominal coverage."""
    for nominal, before, after in zip(table.index, table["before"], table["after"], strict=True):
        shares = [
            f"{share:.0%} {when}"
            for share, when in ((before, "before"), (after, "after"))
            if not np.isnan(share)
        ]
        yield f"{nominal:.0%} nominal: {', '.join(shares) or 'not known'}"


def _counted(count: int, what: str) -> str:
    """Return a number of things."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _named(names: Iterable[Hashable]) -> str:
    """Return the first of some names, and how many more there are."""
    listed = list(names)
    shown = ", ".join(map(str, listed[:_SHOWN]))
    return shown if len(listed) <= _SHOWN else f"{shown} and {len(listed) - _SHOWN} more"
