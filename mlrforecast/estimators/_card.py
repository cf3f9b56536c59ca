"""The card of a saved forecaster: a README for people, and for a hub's search."""

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlrforecast._version import __version__
from mlrforecast.estimators._forecasts import has_quantiles
from mlrforecast.estimators._parameters import plain_parameters
from mlrforecast.estimators._summary import Summary, summarise

if TYPE_CHECKING:
    from mlrforecast.estimators.forecaster import MLRForecaster

CARD = "README.md"
FRONT = """\
---
library_name: mlrforecast
pipeline_tag: time-series-forecasting
tags:
- time-series-forecasting
---
"""
SEAL = "<!-- mlrforecast card {}: once edited, it is kept by a later save -->\n"
SEALED = re.compile(SEAL.format("[0-9a-f]{64}").encode() + rb"\Z")


def write_card(forecaster: "MLRForecaster", *, with_context: bool) -> bytes:
    """Return the card of a fitted forecaster: nothing but what its files hold anyway."""
    summary = repr(_facts(forecaster))
    longest = max((len(run) for run in re.findall("`+", summary)), default=0)
    fence = "`" * max(3, longest + 1)
    steps = forecaster.config_.prediction_length
    text = "\n".join(
        [
            FRONT,
            f"# Forecaster of the next {'step' if steps == 1 else f'{steps} steps'}",
            "",
            "A transformer with structured attention that forecasts time series, written by "
            f"mlrforecast {__version__}.",
            "",
            f"{fence}text\n{summary}\n{fence}",
            "",
            "## Use",
            "",
            *_use(forecaster, with_context=with_context),
            "",
            "## Files",
            "",
            *_files(forecaster, with_context=with_context),
            "",
        ]
    )
    return _sealed(text.encode())


def is_edited(card: bytes | None) -> bool:
    """Tell whether a card is not as it was written, of whatever model; None is no card."""
    if card is None:
        return False
    body = SEALED.sub(b"", card)
    return _sealed(body) != card


def _sealed(text: bytes) -> bytes:
    """Add a last line, which a page does not show, with the digest of the others."""
    digest = hashlib.sha256(text).hexdigest()
    return text + SEAL.format(digest).encode()


def _facts(forecaster: "MLRForecaster") -> Summary:
    """Return the summary without what tells of the frame of ``fit``, and with its settings."""
    sections = {name: dict(facts) for name, facts in summarise(forecaster).sections.items()}
    # The names of series are training data.
    del sections["data"]["series"]
    parameters = plain_parameters(forecaster)
    target = parameters["target"]
    if target is not None:
        names = target if isinstance(target, tuple) else (target,)
        sections["data"]["target"] = ", ".join(map(str, names))
    sections["training"] |= {
        "learning rate": str(parameters["learning_rate"]),
        "batch size": str(forecaster.batch_size_),
        "seed": str(parameters["seed"]),
    }
    return Summary(sections)


def _use(forecaster: "MLRForecaster", *, with_context: bool) -> Iterator[str]:
    """Yield the lines that load the model and forecast."""
    given = [] if with_context else ["frame"]
    if forecaster.encoding_.known:
        given.append("future=future")
    config = forecaster.config_
    if forecaster.calibration_ is not None or has_quantiles(config):
        given.append("quantile_levels=[0.1, 0.9]")
    backbone = "" if forecaster.backbone is None else ", backbone=backbone"
    yield "```python"
    yield "from mlrforecast import MLRForecaster"
    yield ""
    yield '# From a hub: MLRForecaster.from_hub("owner/name").'
    yield f'forecaster = MLRForecaster.load("path/to/this/folder"{backbone})'
    yield f"forecast = forecaster.predict({', '.join(given)})"
    yield "```"
    yield ""
    if not with_context:
        yield (
            f"`frame` holds at least the last {config.context_length} steps of the series to "
            "forecast; series and targets may be new."
        )
    if forecaster.encoding_.known:
        yield "`future` holds the known covariates of the steps to forecast."
    if backbone:
        yield "`backbone` is a module of the class whose weights are stored; its code is not."


def _files(forecaster: "MLRForecaster", *, with_context: bool) -> Iterator[str]:
    """Yield what the files hold, and what of the training data."""
    yield (
        "`config.json` holds settings, `model-*.safetensors` the weights. Loading them runs no "
        "code; files that were altered or cut short are refused."
    )
    yield ""
    calibration = forecaster.calibration_
    rolling = calibration is not None and calibration.method == "rolling"
    if with_context:
        yield (
            "**They hold training data**: `context-*.safetensors` and `config.json` hold the last "
            f"{forecaster.context_length_} steps of each series, with their names and time stamps."
        )
    elif rolling:
        yield "They hold no values and no item ids of the training data."
    else:
        yield "They hold no values, time stamps or item ids of the training data."
    encoding = forecaster.encoding_
    if encoding.past or encoding.known or encoding.static:
        yield (
            "Of the covariates, they hold the names, the mean and spread of numbers, and the "
            "categories of text."
        )
    if calibration is not None:
        times = ", and **the time stamp at which each was known**" if rolling else ""
        yield (
            "`calibration-*.safetensors` holds errors of forecasts in units of their own "
            f"spread{times}."
        )
