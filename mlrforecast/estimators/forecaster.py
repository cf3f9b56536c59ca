"""The estimator: frames in, forecasts out, on the scikit-learn contract."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from mlrforecast import metrics
from mlrforecast.data import default_season_length, read_panel
from mlrforecast.estimators import _files, _inference, _parameters, _rules
from mlrforecast.estimators._context import Context, stack_contexts, take_context
from mlrforecast.estimators._output import (
    check_levels_requested,
    forecast_frame,
    wide_forecast,
    wide_history,
)
from mlrforecast.estimators._rolling import RollingForecast, check_step, roll
from mlrforecast.models import EncoderForecaster
from mlrforecast.plots import plot_forecast
from mlrforecast.training import isolated_seed, train


class MLRForecaster(BaseEstimator):  # type: ignore[misc]
    """Forecast time series with an encoder transformer and multi-level low-rank attention.

    Every series, and every column of a wide frame, is forecast on its own from its last
    ``context_length`` steps by one network that is trained on all of them.

    Parameters
    ----------
    prediction_length : int
        Steps to forecast.
    context_length : int, optional
        Steps that a forecast reads. Default: a quarter of the longest series, at most 336, in
        whole patches.
    attention : str or sequence of str
        Score of the attention layers: ``"mlr"``, ``"standard"``, ``"mlr_window"``,
        ``"sliding_window"``, ``"global_window"``, ``"bilinear"``, ``"bilinear_mlr"`` or
        ``"bilinear_btt"``. Or a pattern of them that is repeated over the layers, such as
        ``("standard", "sliding_window")``.
    ranks : tuple of int, optional
        Columns of each level of MLR attention, coarse to fine; they sum to
        ``width // num_heads``. Default: half of them, a quarter, a quarter. What they are to
        ``"bilinear_mlr"`` and ``"global_window"`` stands with their classes in
        ``mlrforecast.nn``.
    block_sizes : tuple of int or None, optional
        Block length of each level in tokens, coarse to fine, None for all tokens. Default: each
        level halves the blocks of the one before.
    attention_options : mapping of str to object, optional
        Further keyword arguments of :class:`mlrforecast.nn.StructuredAttention`, those of the
        score included, such as ``{"window": 8}`` (in tokens), ``{"num_kv_heads": 1}`` or
        ``{"qk_norm": True}``. In a pattern, each layer takes those that its score has.
    positions : {"learned", "rotary", "none"}
        How a token knows its place. The head knows it in any case, and so do blocks and windows.
    patch_length : int, optional
        Steps of a token; 1 gives the point tokens of the paper. Default: what cuts the context
        into about 20 tokens, at most 16.
    patch_stride : int, optional
        Steps from one patch to the next. Default: ``patch_length``.
    width, num_heads, num_layers, hidden_width : int
        Model width, attention heads, encoder blocks, width of the feed-forward networks.
    dropout, head_dropout : float
        Dropout probability in the encoder and before the head, in [0, 1).
    loss : {"quantile", "mae", "mse"}
        What is trained: a median with quantiles around it, or a point forecast on the absolute
        or the squared error.
    quantile_levels : sequence of float
        Increasing levels in (0, 1) that the quantile loss trains; any level between the first
        and the last can be asked of ``predict``.
    frequency_weight : float
        Weight, 0 to 1, of the error of the forecast's Fourier coefficients in the loss.
    backbone : Module, optional
        Any encoder called as ``backbone(tokens, key_mask)`` with tokens of shape (B, N, D) in
        and out, ``D`` being ``width``, and ``key_mask`` of shape (B, N) or None. It is copied;
        ``attention`` and its options, ``num_heads``, ``num_layers`` and ``hidden_width`` then
        have no effect.
    max_steps : int, optional
        Optimiser steps. Default: 2.5 times the square root of the number of windows, from 100 to
        2000.
    batch_size : int
        Windows of one series in each step.
    learning_rate, weight_decay : float
        Of AdamW. The rate rises over the first tenth of the steps, then falls to zero.
    parametrization : {"standard", "mup"}
        One learning rate for all parameters, or the start and the rates of muP (maximal update
        parametrisation), so that a rate found for a small network fits a large one:
        ``learning_rate`` is then that of a network of width 768, and a matrix that reads ``n``
        numbers has ``768 / n`` times as much. The weights of a ``backbone`` are started anew too.
    early_stopping : bool
        Whether to hold back the newest tenth of each series (at least ``prediction_length``
        steps), stop when its loss no longer falls, and keep the best weights.
    patience : int
        Validations (one every twentieth of ``max_steps``) without a better loss before stopping.
    max_time : timedelta or float, optional
        Longest training time; a number is in seconds.
    seed : int
        Seed of initial weights, dropout and the order of windows.
    accelerator : {"auto", "cpu", "gpu", "mps"}
        Where to train and forecast.
    progress : bool
        Whether ``fit`` shows a progress bar.

    Attributes
    ----------
    model_ : EncoderForecaster
        The trained network.
    config_ : EncoderConfig
        Its configuration, with every default filled in.
    context_length_ : int
        Steps that a forecast reads.
    freq_ : str
        Frequency of the series, as a pandas offset alias.
    season_length_ : int
        Steps of the main season of that frequency, used by ``score``.
    num_parameters_ : int
        Trained numbers of the network.
    num_steps_ : int
        Optimiser steps that were made.

    References
    ----------
    Customizing the Inductive Biases of Softmax Attention using Structured Matrices, ICML 2025,
    arXiv 2509.07963.

    Examples
    --------
    >>> from mlrforecast import MLRForecaster, load_dataset
    >>> frame = load_dataset("synthetic").targets
    >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
    >>> forecaster.fit(frame).predict().shape[0]
    24
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = _parameters.CONSTRAINTS

    def __init__(
        self,
        prediction_length: int,
        *,
        context_length: int | None = None,
        attention: str | Sequence[str] = "mlr",
        ranks: Sequence[int] | None = None,
        block_sizes: Sequence[int | None] | None = None,
        attention_options: Mapping[str, Any] | None = None,
        positions: str = "learned",
        patch_length: int | None = None,
        patch_stride: int | None = None,
        width: int = 32,
        num_heads: int = 4,
        num_layers: int = 2,
        hidden_width: int = 64,
        dropout: float = 0.2,
        head_dropout: float = 0.0,
        loss: str = "quantile",
        quantile_levels: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        frequency_weight: float = 0.8,
        backbone: nn.Module | None = None,
        max_steps: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        parametrization: str = "standard",
        early_stopping: bool = False,
        patience: int = 5,
        max_time: timedelta | float | None = None,
        seed: int = 0,
        accelerator: str = "auto",
        progress: bool = True,
    ) -> None:
        self.prediction_length = prediction_length
        self.context_length = context_length
        self.attention = attention
        self.ranks = ranks
        self.block_sizes = block_sizes
        self.attention_options = attention_options
        self.positions = positions
        self.patch_length = patch_length
        self.patch_stride = patch_stride
        self.width = width
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.hidden_width = hidden_width
        self.dropout = dropout
        self.head_dropout = head_dropout
        self.loss = loss
        self.quantile_levels = quantile_levels
        self.frequency_weight = frequency_weight
        self.backbone = backbone
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.parametrization = parametrization
        self.early_stopping = early_stopping
        self.patience = patience
        self.max_time = max_time
        self.seed = seed
        self.accelerator = accelerator
        self.progress = progress

    def fit(self, X: pd.DataFrame, y: None = None) -> Self:
        """Train on every window of every series in a frame.

        Training seeds the random generators of the process and puts them back, so fits in
        threads of one process, and :meth:`load` beside them, run one after the other. Use
        processes to fit in parallel.

        Fits in several threads of one process run one after the other; use processes instead.

        Parameters
        ----------
        X : DataFrame
            Wide: a ``DatetimeIndex`` and numeric columns, each a series. Long: the columns
            ``item_id, timestamp, target`` or ``unique_id, ds, y``. Stamps are regular and
            unique; rows may come in any order; values may be missing (NaN): they are left out
            of the normalisation and of the loss.
        y : None
            Not used; here for scikit-learn.

        Returns
        -------
        MLRForecaster
            The forecaster itself, fitted.

        Raises
        ------
        DataError
            If the frame breaks a rule; a ValueError that names the column or series, the rule
            and the value. Nothing has been trained then.
        ValueError
            If a parameter is out of its range.
        """
        if y is not None:
            raise ValueError("`y` must be None: the targets are the columns of `X`.")
        self.check_parameters()
        parameters = _parameters.plain_parameters(self)
        # Reading a frame swaps the filters of warnings, which belong to the process too.
        with isolated_seed(parameters["seed"]):
            panel = read_panel(X)
            longest = max(len(item.index) for item in panel.series)
            config = _parameters.to_config(parameters, longest)
            training, validation = _rules.split_validation(
                panel, config, hold_back=self.early_stopping
            )
            store = _rules.window_store(training, config)
            model = _rules.build_model(config, self.backbone)
            _rules.start(model, parameters["parametrization"])
            self.num_steps_ = train(
                model,
                store,
                _parameters.training_options(parameters, len(store)),
                validation=None if validation is None else _rules.window_store(validation, config),
            )
        self._set_fitted(model, panel.freq, take_context(X, panel, config.context_length))
        return self

    def check_parameters(self) -> None:
        """Check all about the parameters that can be checked without data; ``fit`` does it first.

        What is left to ``fit`` is whether series are long enough, and whether a ``backbone``
        accepts and returns tokens.

        Raises
        ------
        ValueError, TypeError
            If a parameter is out of its range or of another type, two do not go together, or the
            ``accelerator`` is not there.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster
        >>> MLRForecaster(prediction_length=24, width=30, num_heads=5).check_parameters()
        >>> MLRForecaster(prediction_length=24, width=30, num_heads=4).check_parameters()
        Traceback (most recent call last):
        ...
        ValueError: `num_heads` must divide the width 30, got 4.
        """
        self._validate_params()
        _parameters.check_without_data(_parameters.plain_parameters(self))
        _inference.find_device(self.accelerator)

    def predict(
        self, X: pd.DataFrame | None = None, *, quantile_levels: Sequence[float] | None = None
    ) -> pd.DataFrame:
        """Forecast the ``prediction_length`` steps that follow a frame.

        Parameters
        ----------
        X : DataFrame, optional
            A frame in either form, of the frequency of the one given to ``fit``; series and
            columns may be new. Only the last ``context_length_`` rows of each series are read.
            Default: the frame of ``fit``.
        quantile_levels : sequence of float, optional
            Levels to forecast too, within the trained ones; between two trained levels the
            quantile is interpolated.

        Returns
        -------
        DataFrame
            In the form of ``X``. Wide: the future stamps as index and the same columns; with
            ``quantile_levels`` each column becomes a group: ``forecast["load"]["0.9"]``, and
            ``forecast["load"]["point"]``. Long: the same three columns, with the point forecast
            as target, and a column a level, named ``"0.9"``.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        DataError
            If the frame breaks a rule.
        ValueError
            If a level is not within the trained ones, or the loss has no quantiles, or ``X`` is
            omitted after ``load``.
        """
        check_is_fitted(self, "model_")
        levels = check_levels_requested(quantile_levels, self.config_)
        return self._predict(self._context(X), levels)

    def rolling_forecast(
        self,
        X: pd.DataFrame,
        *,
        step: int = 1,
        quantile_levels: Sequence[float] | None = None,
    ) -> RollingForecast:
        """Forecast from every window inside a frame, without refitting.

        Parameters
        ----------
        X : DataFrame
            A frame in either form whose series hold at least ``context_length_ +
            prediction_length`` rows.
        step : int
            Rows from one window to the next; windows are counted back from the newest row.
        quantile_levels : sequence of float, optional
            Levels to forecast too.

        Returns
        -------
        RollingForecast
            Forecasts, actual values and cutoffs of all windows, oldest first.

        Raises
        ------
        NotFittedError, DataError, ValueError
            As in :meth:`predict`; also if a series is shorter than a window.
        """
        check_is_fitted(self, "model_")
        check_step(step)
        levels = check_levels_requested(quantile_levels, self.config_)
        return roll(self.model_, read_panel(X, freq=self.freq_), step, levels, self.accelerator)[0]

    def score(self, X: pd.DataFrame, y: None = None) -> float:
        """Return minus the mean absolute scaled error over the windows inside a frame.

        Windows follow each other every ``prediction_length`` steps, counted back from the newest
        row. The error of each is divided by that of the seasonal naive forecast inside its own
        context; windows whose context repeats its season exactly, and so has no such error,
        are left out, with one warning that counts them.

        Parameters
        ----------
        X : DataFrame
            As in :meth:`rolling_forecast`.
        y : None
            Not used; here for scikit-learn.

        Returns
        -------
        float
            Higher is better.

        Raises
        ------
        NotFittedError, DataError, ValueError
            As in :meth:`rolling_forecast`; also if no window can be scored.

        Warns
        -----
        UserWarning
            If some, but not all, windows are left out.
        """
        check_is_fitted(self, "model_")
        season = self.season_length_ if self.season_length_ < self.context_length_ else 1
        panel = read_panel(X, freq=self.freq_)
        step = self.config_.prediction_length
        rolled, windows = roll(self.model_, panel, step, None, self.accelerator)
        scales = [metrics.seasonal_error(part.context, season) for part in windows]
        return -float(metrics.mase(rolled.actual, rolled.forecast, np.concatenate(scales)))

    def plot(
        self,
        X: pd.DataFrame | None = None,
        *,
        quantile_levels: Sequence[float] | None = None,
        max_items: int = 4,
    ) -> NDArray[Any]:
        """Draw the end of the history and the forecast that follows it.

        Parameters
        ----------
        X : DataFrame, optional
            As in :meth:`predict`.
        quantile_levels : sequence of float, optional
            Levels of the fan. Default: all that were trained, if the loss has quantiles.
        max_items : int
            Columns or series to draw at most.

        Returns
        -------
        ndarray of Axes
            One a series; nothing is shown or saved.

        Raises
        ------
        NotFittedError, DataError, ValueError
            As in :meth:`predict`.
        """
        check_is_fitted(self, "model_")
        if quantile_levels is None and self.config_.loss == "quantile":
            quantile_levels = self.config_.quantile_levels
        if max_items < 1:
            raise ValueError(f"`max_items` must be at least 1, got {max_items}.")
        levels = check_levels_requested(quantile_levels, self.config_)
        context = self._context(X)
        shown = context.draw_from(max_items)
        forecast = wide_forecast(self._predict(shown, levels), shown)
        history = wide_history(shown, 3 * self.config_.prediction_length)
        axes = plot_forecast(history, forecast, history_length=len(history), max_items=max_items)
        if (hidden := len(context.labels) - len(axes)) > 0:
            axes[-1].set_xlabel(f"and {hidden} more, not drawn")
        return axes

    def save(self, path: str | PathLike[str], *, with_context: bool = False) -> None:
        """Write the fitted forecaster to a folder: safetensors and JSON, no code, no data.

        Parameters
        ----------
        path : path
            Folder to create, or an earlier model to replace. Whoever loads it meanwhile, or after
            a save that was cut short, gets the old model or the new one.
        with_context : bool
            Whether to also store the last ``context_length_`` rows of each series given to
            ``fit``, so that ``predict()`` works after ``load``. **They are training data.**

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        FileExistsError
            If ``path`` is a file, or a folder that holds something else.
        OSError
            If ``path`` cannot be written.
        ValueError
            If a parameter of the network was changed after ``fit``, or there is no context.
        """
        check_is_fitted(self, "model_")
        _files.save(self, path, with_context=with_context)

    @classmethod
    def load(cls, path: str | PathLike[str], *, backbone: nn.Module | None = None) -> Self:
        """Read a forecaster that :meth:`save` wrote; nothing in the files is executed.

        Parameters
        ----------
        path : path
            The folder.
        backbone : Module, optional
            The custom backbone, if the forecaster was fitted with one; it is copied.

        Returns
        -------
        MLRForecaster
            Fitted, with the same weights to the bit.

        Raises
        ------
        FileNotFoundError
            If there is no such folder.
        ModelFileError
            If the files are incomplete, altered, of an unknown version, or were replaced while
            they were read. Checksums find accidents; they are no proof of who wrote a file.
        """
        return _files.load(cls, path, backbone)

    def _set_fitted(self, model: EncoderForecaster, freq: str, context: Context | None) -> None:
        self.model_ = model
        self.config_ = model.config
        self.context_length_ = model.config.context_length
        self.freq_ = freq
        self.season_length_ = default_season_length(freq)
        self.num_parameters_ = sum(parameter.numel() for parameter in model.parameters())
        self.context_ = context

    def _context(self, X: pd.DataFrame | None) -> Context:
        """Return the rows to forecast from."""
        if X is not None:
            return take_context(X, read_panel(X, freq=self.freq_), self.context_length_)
        if self.context_ is None:
            raise ValueError(
                "`X` is needed: this forecaster was loaded from a file without its context. "
                "Pass the frame to forecast from, or save with `with_context=True`."
            )
        return self.context_

    def _predict(self, context: Context, levels: tuple[float, ...] | None) -> pd.DataFrame:
        """Forecast the steps that follow a context."""
        contexts = stack_contexts(context.panel, self.context_length_)
        point, quantiles = _inference.forecast(self.model_, [contexts], levels, self.accelerator)
        return forecast_frame(context, point, quantiles, levels)
