"""Models, one a file: a frozen configuration and the module it describes."""

from mlrforecast.models.encoder import EncoderConfig, EncoderForecaster

__all__ = ["EncoderConfig", "EncoderForecaster"]
