"""A configuration and the estimator that fills it agree on their defaults."""

import dataclasses
import inspect

from mlrforecast.estimators import MLRForecaster
from mlrforecast.models import EncoderConfig

# What the estimator derives from the data where it is left out.
DERIVED = {"context_length", "patch_length", "patch_stride"}
# What the columns of the frame determine.
OF_COLUMNS = {
    "past_cardinalities",
    "known_cardinalities",
    "static_cardinalities",
    "num_calendar_features",
}
# Parts beside the network, off in a configuration; the estimator derives them from the horizon.
ADDED = {"linear_share"}


def test_defaults_are_those_of_the_estimator() -> None:
    parameters = inspect.signature(MLRForecaster).parameters
    compared = 0
    for field in dataclasses.fields(EncoderConfig):
        if field.name in OF_COLUMNS:
            assert field.name not in parameters
            continue
        default = parameters[field.name].default
        if field.name in ADDED:
            assert (default, field.default) == (None, 0.0)
        elif field.name in DERIVED:
            assert default is None
        elif field.default is dataclasses.MISSING:
            assert default is inspect.Parameter.empty
        else:
            assert default == field.default, field.name
            compared += 1
    assert compared > 10
