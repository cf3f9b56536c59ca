"""From a panel to a trained network."""

from typing import Any, NamedTuple

import numpy as np
from torch import nn

from mlrforecast.data import CovariateEncoding, Panel
from mlrforecast.estimators import _inference, _parameters, _rules
from mlrforecast.estimators._paths import learn_dependence
from mlrforecast.estimators._training_data import prepare
from mlrforecast.models import EncoderForecaster
from mlrforecast.training import isolated_seed, train


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
    """

    model: EncoderForecaster
    encoding: CovariateEncoding
    dependence: np.ndarray
    num_steps: int


def fit_panel(panel: Panel, parameters: dict[str, Any], backbone: nn.Module | None) -> Fitted:
    """Train a network on a panel, as the parameters say."""
    with isolated_seed(parameters["seed"]):
        data = prepare(panel, parameters)
        model = _rules.build_model(data.config, backbone)
        _rules.start(model, parameters["parametrization"])
        options = _parameters.training_options(parameters, len(data.store))
        num_steps = train(model, data.store, options, validation=data.validation)
    predictor = _inference.Predictor(model, data.encoding, parameters["accelerator"])
    dependence = learn_dependence(predictor, panel, seed=parameters["seed"])
    return Fitted(model, data.encoding, dependence, num_steps)
