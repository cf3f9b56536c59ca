"""From a panel to a trained network."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from mlrforecast._core import devices
from mlrforecast._version import __version__
from mlrforecast.data import CovariateEncoding, Panel, default_season_length
from mlrforecast.estimators import _inference, _parameters, _rules
from mlrforecast.estimators._paths import learn_dependence
from mlrforecast.estimators._training_data import TrainingData, prepare
from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.nn import Encoder
from mlrforecast.training import (
    Checkpoint,
    MemoryEstimate,
    TrainingOptions,
    Watch,
    available_memory,
    check_memory,
    estimate_memory,
    find_batch_size,
    isolated_seed,
    solve_linear,
    train,
)
from mlrforecast.training.checkpoint import tensors_digest
from mlrforecast.training.team import Team

NOT_OF_THE_RUN = ("accelerator", "log_dir", "logger", "progress")
"""Options that change no weight, but for the rounding of a device."""


class Fitted(NamedTuple):
    """What was learnt from a panel.

    Parameters
    ----------
    model : EncoderForecaster
        The trained network.
    encoding : CovariateEncoding
        How covariates and the calendar are read.
    dependence : ndarray of shape (F,)
        How errors some steps apart correlate inside a forecast.
    num_steps : int
        Optimiser steps that were made.
    batch_size : int
        Windows of each of the last steps.
    """

    model: EncoderForecaster
    encoding: CovariateEncoding
    dependence: np.ndarray
    num_steps: int
    batch_size: int


class Trained(NamedTuple):
    """A network after its last step.

    Parameters
    ----------
    model : EncoderForecaster
        The trained network.
    encoding : CovariateEncoding
        How covariates and the calendar are read.
    num_steps, batch_size : int
        Optimiser steps of this run, and windows of each.
    """

    model: EncoderForecaster
    encoding: CovariateEncoding
    num_steps: int
    batch_size: int


class Run(NamedTuple):
    """A training run before its first step.

    Parameters
    ----------
    data : TrainingData
        Windows, and how they are read.
    model : EncoderForecaster
        The network with its first weights.
    options : TrainingOptions
        How it is trained.
    """

    data: TrainingData
    model: EncoderForecaster
    options: TrainingOptions


def set_up(
    panel: Panel,
    parameters: dict[str, Any],
    backbone: nn.Module | None,
    *,
    start: Fitted | None = None,
) -> Run:
    """Make all that a run begins with; random numbers are drawn from the process's generators."""
    fixed = None if start is None else (start.model.config, start.encoding)
    if parameters["devices"] > 1 and not panel.storage.in_memory:
        raise ValueError(
            f"`devices` must be 1 for a FileDataset, got {parameters['devices']}: the processes of "
            "several devices do not share its scratch files. Fit on one device, or on a frame."
        )
    data = prepare(panel, parameters, fixed)
    if start is None:
        _check_weights(data.config, backbone, parameters)
        model = _rules.build_model(data.config, backbone)
        _rules.start(model, parameters["parametrization"])
    else:
        # A copy: what fails leaves the fitted network as it is.
        model = deepcopy(start.model).train()
        if model.linear is not None:
            # Where the weights of the best validation are kept, it scores the network alone.
            model.linear.share.zero_()
    options = _parameters.training_options(parameters, len(data.store))
    if parameters["batch_size"] == "auto":
        size = find_batch_size(
            model,
            data.store,
            options,
            available=_available(options),
            validation=data.validation,
            forecast_batch=_inference.BATCH,
        )
        shared = max(size - size % options.devices, options.devices)
        options = dataclasses.replace(options, batch_size=shared)
    return Run(data, model, options)


def count_memory(run: Run) -> MemoryEstimate:
    """Count the memory of a run, and of the forecasts that follow it."""
    return estimate_memory(
        run.model,
        run.data.store,
        run.options,
        validation=run.data.validation,
        forecast_batch=_inference.BATCH,
    )


def fit_panel(
    panel: Panel,
    parameters: dict[str, Any],
    backbone: nn.Module | None,
    *,
    start: Fitted | None = None,
    team: Team | None = None,
) -> Fitted:
    """Train a network on a panel, as the parameters say, and learn how its errors hang together."""
    trained = train_on_panel(panel, parameters, backbone, start=start, team=team)
    predictor = _inference.Predictor(trained.model, trained.encoding, parameters["accelerator"])
    dependence = learn_dependence(predictor, panel, seed=parameters["seed"])
    before = 0 if start is None else start.num_steps
    return Fitted(
        trained.model,
        trained.encoding,
        dependence,
        before + trained.num_steps,
        trained.batch_size,
    )


def train_on_panel(
    panel: Panel,
    parameters: dict[str, Any],
    backbone: nn.Module | None,
    *,
    start: Fitted | None = None,
    checkpoint: Checkpoint | None = None,
    look: Callable[[_inference.Predictor], None] | None = None,
    times: int = 1,
    team: Team | None = None,
) -> Trained:
    """Train a network on a panel, from the first weights or given ones.

    A ``checkpoint`` takes the place of that in the folder which the parameters name; ``look`` is
    called between ``times`` equal parts of the run, with what forecasts at that time.
    """
    with isolated_seed(parameters["seed"]):
        run = set_up(panel, parameters, backbone, start=start)
        data, model, options = run
        available = _available(options)
        if not _surely_fits(run, available):
            check_memory(count_memory(run), available)
        if checkpoint is None and (folder := parameters["checkpoint_dir"]) is not None:
            checkpoint = Checkpoint(folder, _digest(panel, data, model, options))
        watch = None
        if look is not None:
            accelerator, seen = parameters["accelerator"], look
            watch = Watch(
                times,
                lambda model: seen(_inference.Predictor(model, data.encoding, accelerator)),
            )
        num_steps = train(
            model,
            data.store,
            options,
            validation=data.validation,
            checkpoint=checkpoint,
            watch=watch,
            team=team,
        )
        season = parameters["season_length"] or default_season_length(panel.freq)
        solve_linear(model, data.store, season, devices.find_device(options.accelerator))
    return Trained(model, data.encoding, num_steps, options.batch_size)


def _check_weights(
    config: EncoderConfig, backbone: nn.Module | None, parameters: dict[str, Any]
) -> None:
    """Refuse a network whose weights alone need more memory than there is, before it is built."""
    skeleton = _rules.build_skeleton(config, backbone)
    weights = sum(parameter.nbytes for parameter in skeleton.parameters())
    estimate = MemoryEstimate(
        weights=weights, gradients=weights, optimizer=2 * weights, activations=0, data=0
    )
    check_memory(estimate, available_memory(devices.find_device(parameters["accelerator"])))


def _surely_fits(run: Run, available: int) -> bool:
    """Tell whether a run is so small that its memory need not be counted, which takes a while.

    A bound from the sizes of the network, several times what any of them was counted to need,
    may fill a hundredth of the memory.
    """
    config = run.data.config
    if not isinstance(run.model.backbone, Encoder):
        return False
    numbers = 8 * (config.width + config.hidden_width)
    numbers += 4 * config.num_heads * run.model.embedding.num_tokens
    steps = config.context_length + config.prediction_length
    windows = max(run.options.batch_size, _inference.BATCH)
    return 4 * windows * steps * config.num_layers * numbers < available / 100


def _available(options: TrainingOptions) -> int:
    """Return the bytes of memory for each device."""
    device = devices.find_device(options.accelerator)
    available = available_memory(device)
    return available if device.type == "cuda" else available // options.devices


def _digest(
    panel: Panel, data: TrainingData, model: EncoderForecaster, options: TrainingOptions
) -> str:
    """Return the sha256 of all that determines the weights that a run ends with."""
    kept = dataclasses.asdict(options)
    for name in NOT_OF_THE_RUN:
        del kept[name]
    described = {
        "version": __version__,
        # Of a backbone or a score of one's own the classes and settings, which are in no config.
        "network": f"{type(model.backbone).__module__} {model!r}",
        "settings": [_settings(module) for module in model.modules()],
        "frozen": [name for name, weight in model.named_parameters() if not weight.requires_grad],
        "config": data.config.to_dict(),
        "encoding": data.encoding.to_dict(),
        "options": kept,
    }
    digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode())
    digest.update(panel.digest().encode())
    digest.update(tensors_digest(model.state_dict()).encode())
    return digest.hexdigest()


def _settings(module: nn.Module) -> list[tuple[str, str]]:
    """Return what a module keeps beside tensors and modules, where it has a value to compare."""
    kept = sorted(vars(module).items())
    return [
        (name, repr(value)) for name, value in kept if isinstance(value, bool | int | float | str)
    ]
