"""The estimator: frames in, forecasts out, on the scikit-learn contract."""

from collections.abc import Hashable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import nn

from mlrforecast.data import (
    CovariateEncoding,
    FrameSchema,
    Panel,
    default_season_length,
    extend_panel,
    read_panel,
    write_forecast,
)
from mlrforecast.estimators import _files, _inference, _leakage, _parameters, _rolling, _rules
from mlrforecast.estimators._output import (
    check_levels_requested,
    first_items,
    wide_forecast,
    wide_history,
)
from mlrforecast.estimators._rolling import RollingForecast
from mlrforecast.estimators._training_data import prepare
from mlrforecast.models import EncoderForecaster
from mlrforecast.plots import plot_forecast
from mlrforecast.training import isolated_seed, train


class MLRForecaster(BaseEstimator):  # type: ignore[misc]
    """Forecast time series with an encoder transformer and multi-level low-rank attention.

    Every series, and every target column of a wide frame, is forecast on its own from its last
    ``context_length`` steps by one network that is trained on all of them. Frames may be wide or
    long, of pandas, polars or any other library that narwhals reads; a pandas Series and arrays of
    numpy are read too, and a forecast comes back in the form that was given.

    Parameters
    ----------
    prediction_length : int
        Steps to forecast.
    context_length : int, optional
        Steps that a forecast reads. Default: a quarter of the longest series, at most 336, in
        whole patches. Shorter series are padded and the padding is masked.
    target : hashable or sequence of hashable, optional
        Column to forecast, of a wide frame one or more; columns that no parameter names are left
        out then. Default: ``"target"`` or ``"y"`` of a long frame, all columns without another
        role of a wide one.
    id_column : hashable, optional
        Column that names the series of each row of a long frame. Default: ``"item_id"`` or
        ``"unique_id"``, where there is one; a frame without is a wide one.
    timestamp_column : hashable, optional
        Column of the time stamps. Default: ``"timestamp"`` or ``"ds"``, else the index where it
        holds time, else the one column that does.
    past_covariates : sequence of hashable
        Columns, numeric or categorical, whose values are known up to the present, such as the
        measured temperature.
    known_covariates : sequence of hashable
        Columns, numeric or categorical, whose values are known over the steps to forecast too,
        such as prices and promotions; ``predict`` takes those of the future.
    static_covariates : sequence of hashable
        Columns of a long frame, numeric or categorical, that hold one value for each series. A
        category that ``fit`` did not see counts as unknown, here as in the other covariates.
    calendar : bool
        Whether the network reads where in the day, the week and the year each step to forecast
        stands, in local time. A cycle that is no longer than a step, or that no series goes
        through twice, is left out.
    freq : str or int, optional
        Step from one row to the next: a pandas offset alias such as ``"15min"``, ``"W-WED"`` or
        ``"MS"``, or the difference of integer time. Default: what the stamps of the longest series
        follow.
    fill : {"missing", "zero"}, optional
        What rows hold that are absent between the first and the last of a series: missing targets,
        which are masked, or targets of 0. Default: a gap is an error.
    resample : {"mean", "sum", "median", "min", "max", "first", "last"}, optional
        How the target values of rows that fall into one step of ``freq`` become one value, for
        irregular stamps. Default: irregular stamps are an error, which proposes a ``freq``.
    scaling : {"standard", "robust", "mean_abs"}
        How each context is brought to one size and level before the network reads it, and the
        forecast back: by mean and standard deviation; by median and distance of the quartiles,
        which spikes do not move; or by the mean absolute value alone, which leaves 0 at 0, for
        counts that often are 0.
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
        steps), stop when its loss no longer falls, and keep the best weights. Series that are too
        short for that are trained on as a whole.
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
    schema_ : FrameSchema
        What the parameters said of frames when ``fit`` was called; later frames are read so too.
    encoding_ : CovariateEncoding
        How covariates and the calendar are read, as learnt from the training rows.
    context_ : Panel or None
        The last ``context_length_`` rows of each series given to ``fit``, None after ``load``
        unless they were saved.
    freq_ : str or int
        Frequency of the series, as a pandas offset alias, or the step of integer time.
    season_length_ : int
        Steps of the main season of that frequency, used by ``score``.
    num_parameters_ : int
        Trained numbers of the network.
    num_steps_ : int
        Optimiser steps that were made.
    n_features_in_ : int
        Columns of the frame given to ``fit``; not there after ``load``.
    feature_names_in_ : ndarray of str
        Their names, where all of them are text; not there after ``load``.

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

    With covariates that are known in advance:

    >>> import numpy as np
    >>> import pandas as pd
    >>> days = pd.date_range("2024-01-01", periods=67, freq="D")
    >>> promo = np.arange(67) % 5 == 0
    >>> sales = pd.DataFrame({"shop": "007", "day": days, "sold": 10 + 5 * promo, "promo": promo})
    >>> forecaster = MLRForecaster(
    ...     prediction_length=7,
    ...     target="sold",
    ...     id_column="shop",
    ...     timestamp_column="day",
    ...     known_covariates=["promo"],
    ...     max_steps=2,
    ...     progress=False,
    ... )
    >>> forecast = forecaster.fit(sales[:60]).predict(future=sales[60:])
    >>> list(forecast.columns), forecast["day"].iloc[0]
    (['shop', 'day', 'sold'], Timestamp('2024-03-01 00:00:00'))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any] | str]] = _parameters.CONSTRAINTS

    def __init__(
        self,
        prediction_length: int,
        *,
        context_length: int | None = None,
        target: Hashable | Sequence[Hashable] | None = None,
        id_column: Hashable | None = None,
        timestamp_column: Hashable | None = None,
        past_covariates: Sequence[Hashable] = (),
        known_covariates: Sequence[Hashable] = (),
        static_covariates: Sequence[Hashable] = (),
        calendar: bool = True,
        freq: str | int | None = None,
        fill: str | None = None,
        resample: str | None = None,
        scaling: str = "standard",
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
        self.target = target
        self.id_column = id_column
        self.timestamp_column = timestamp_column
        self.past_covariates = past_covariates
        self.known_covariates = known_covariates
        self.static_covariates = static_covariates
        self.calendar = calendar
        self.freq = freq
        self.fill = fill
        self.resample = resample
        self.scaling = scaling
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

    def fit(self, X: object, y: None = None) -> Self:
        """Train on every window of every series in a frame.

        Training seeds the random generators of the process and puts them back, so fits in
        threads of one process, and :meth:`load` beside them, run one after the other. Use
        processes to fit in parallel.

        Parameters
        ----------
        X : DataFrame, Series or ndarray
            Wide: time and numeric columns, each a series. Long: a row for each item and stamp. An
            array of shape (T,) or (T, C) has the time 0 to T - 1. Rows may come in any order;
            targets may be missing (NaN): they are left out of the normalisation and of the loss.
            A series needs two rows.
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
        TypeError
            If ``X`` is no frame, or a parameter has another type.
        ValueError
            If a parameter is out of its range.
        """
        if y is not None:
            raise ValueError("`y` must be None: the targets are the columns of `X`.")
        self.check_parameters()
        parameters = _parameters.plain_parameters(self)
        schema = _parameters.to_schema(parameters)
        # Reading a frame swaps the filters of warnings, which belong to the process too.
        with isolated_seed(parameters["seed"]):
            panel = read_panel(X, schema)
            data = prepare(panel, parameters)
            model = _rules.build_model(data.config, self.backbone)
            _rules.start(model, parameters["parametrization"])
            options = _parameters.training_options(parameters, len(data.store))
            self.num_steps_ = train(model, data.store, options, validation=data.validation)
        self._set_fitted(
            model,
            schema=schema,
            encoding=data.encoding,
            freq=panel.freq,
            context=panel.tail(data.config.context_length),
        )
        self._note_features(_parameters.names_of_columns(X))
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

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
        self,
        X: object = None,
        *,
        future: object = None,
        quantile_levels: Sequence[float] | None = None,
    ) -> Any:
        """Forecast the ``prediction_length`` steps that follow a frame.

        Parameters
        ----------
        X : DataFrame, Series or ndarray, optional
            A frame in any form, of the frequency of the one given to ``fit``, with the same
            covariates; series and targets may be new. Only the last ``context_length_`` rows of
            each series are read. Default: the frame of ``fit``.
        future : DataFrame, optional
            The ``known_covariates`` of the steps to forecast: a frame in the form of ``X`` with
            its time, its items if it is a long one, and these columns. It may hold more rows and
            columns, which are not read. Needed if there are known covariates.
        quantile_levels : sequence of float, optional
            Levels to forecast too, within the trained ones; between two trained levels the
            quantile is interpolated.

        Returns
        -------
        DataFrame, Series or ndarray
            In the form, and of the library, of ``X``.

            - Wide: the future stamps and the target columns. With ``quantile_levels`` each column
              becomes a group: ``forecast["load"]["0.9"]``, and ``forecast["load"]["point"]``;
              where time is a column, there are the columns ``"load"`` and ``"load_0.9"``.
            - Long: items, future stamps and targets, and a column a level, named ``"0.9"``.
            - Series: a Series; with ``quantile_levels`` a frame of ``"point"`` and ``"0.9"``.
            - Array of shape (T,) or (T, C): an array of shape (F,) or (F, C); with
              ``quantile_levels`` the quantiles alone, of shape (F, Q) or (F, C, Q).

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        DataError
            If a frame breaks a rule. If ``future`` is incomplete, the message lists what is
            missing.
        ValueError
            If a level is not within the trained ones, or the loss has no quantiles, or ``X`` is
            omitted after ``load``.
        """
        check_is_fitted(self, "model_")
        levels = check_levels_requested(quantile_levels, self.config_)
        panel = self._context(X)
        return write_forecast(panel, *self._forecast(panel, future, levels), levels)

    def rolling_forecast(
        self,
        X: object,
        *,
        step: int = 1,
        quantile_levels: Sequence[float] | None = None,
    ) -> RollingForecast:
        """Forecast from every window inside a frame, without refitting.

        Parameters
        ----------
        X : DataFrame, Series or ndarray
            A frame in any form whose series hold at least ``prediction_length + 1`` rows; known
            covariates are read from it too. A series with less than ``context_length_ +
            prediction_length`` rows has one window, whose context is what there is.
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
            As in :meth:`predict`; also if a series is too short.
        """
        check_is_fitted(self, "model_")
        step = _rolling.check_step(step)
        levels = check_levels_requested(quantile_levels, self.config_)
        panel = self._read(X)
        windows = _rolling.rolling_windows(self._predictor, panel, step)
        return _rolling.roll(self._predictor, windows, levels)

    def score(self, X: object, y: None = None) -> float:
        """Return minus the mean absolute scaled error over the windows inside a frame.

        Windows follow each other every ``prediction_length`` steps, counted back from the newest
        row. The error of each is divided by that of the seasonal naive forecast inside its own
        context; windows whose context repeats its season exactly, and so has no such error,
        are left out, with one warning that counts them.

        Parameters
        ----------
        X : DataFrame, Series or ndarray
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
        panel = self._read(X)
        step = self.config_.prediction_length
        windows = _rolling.rolling_windows(self._predictor, panel, step)
        rolled = _rolling.roll(self._predictor, windows, None)
        return -_rolling.scaled_error(rolled, windows, self.season_length_)

    def check_leakage(self, X: object, *, cutoffs: int = 3) -> pd.DataFrame:
        """Check on a frame that nothing after a cutoff reaches what stands before it.

        At each cutoff, targets and past covariates after it are replaced, by noise of another
        size and then by nothing, and the rows beyond the steps to forecast are cut off. What the
        forecaster makes of the rows up to the cutoff must stay the same to the last bit.

        Parameters
        ----------
        X : DataFrame, Series or ndarray
            As in :meth:`rolling_forecast`; the frame that ``fit`` was given, or a newer one.
        cutoffs : int
            Cutoffs to check, at about equal distances in the longest series.

        Returns
        -------
        DataFrame
            A row for each check, with the columns ``check``, ``cutoff`` (the last stamp before
            what was changed), ``max_change`` and ``passed``.

            - ``"scaler"``: change of the location and scale of the contexts, in units of the scale.
            - ``"forecast"``: change of point forecasts and quantiles, in the same units.
            - ``"training"``: change of the scaled training windows and of the encoding of
              covariates when the rows that early stopping would hold back are replaced. Left out
              if no series is long enough to hold rows back.
            - ``"known covariate 'x'"``: here ``max_change`` is the size of the correlation of a
              numeric known covariate with a target in the same row. Above 0.9999 it does not
              pass: the column may be the target itself, which nobody knows in advance.

        Raises
        ------
        NotFittedError, DataError, ValueError
            As in :meth:`predict`; also if no series has two rows.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> frame = load_dataset("synthetic").targets
        >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
        >>> bool(forecaster.fit(frame).check_leakage(frame)["passed"].all())
        True
        """
        check_is_fitted(self, "model_")
        cutoffs = _leakage.check_cutoffs(cutoffs)
        parameters = _parameters.plain_parameters(self)
        return _leakage.find_leaks(self._predictor, self._read(X), parameters, cutoffs)

    def plot(
        self,
        X: object = None,
        *,
        future: object = None,
        quantile_levels: Sequence[float] | None = None,
        max_items: int = 4,
    ) -> NDArray[Any]:
        """Draw the end of the history and the forecast that follows it.

        Parameters
        ----------
        X, future : DataFrame, optional
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
        panel = self._context(X)
        shown = first_items(panel, max_items)
        forecast = wide_forecast(shown, *self._forecast(shown, future, levels), levels)
        history = wide_history(shown, 3 * self.config_.prediction_length)
        axes = plot_forecast(history, forecast, history_length=len(history), max_items=max_items)
        if (hidden := len(panel.labels) - len(axes)) > 0:
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

    def _set_fitted(
        self,
        model: EncoderForecaster,
        *,
        schema: FrameSchema,
        encoding: CovariateEncoding,
        freq: str | int,
        context: Panel | None,
    ) -> None:
        self.model_ = model
        self.config_ = model.config
        self.context_length_ = model.config.context_length
        self.schema_ = schema
        self.encoding_ = encoding
        self.freq_ = freq
        self.season_length_ = default_season_length(freq)
        self.num_parameters_ = sum(parameter.numel() for parameter in model.parameters())
        self.context_ = context

    def _note_features(self, names: Sequence[Any]) -> None:
        """Keep what scikit-learn wants to know of the columns of a frame."""
        self.n_features_in_ = len(names)
        if all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            # Of an earlier fit.
            del self.feature_names_in_

    @property
    def _predictor(self) -> _inference.Predictor:
        """What forecasts from panels."""
        return _inference.Predictor(self.model_, self.encoding_, self.accelerator)

    def _read(self, X: object) -> Panel:
        """Read a frame as the one of ``fit`` was read, whatever the parameters are now."""
        return read_panel(X, self.schema_, freq=self.freq_)

    def _context(self, X: object) -> Panel:
        """Return the rows to forecast from."""
        if X is not None:
            return self._read(X).tail(self.context_length_)
        if self.context_ is None:
            raise ValueError(
                "`X` is needed: this forecaster was loaded from a file without its context. "
                "Pass the frame to forecast from, or save with `with_context=True`."
            )
        return self.context_

    def _forecast(
        self, panel: Panel, future: object, levels: tuple[float, ...] | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Forecast the steps that follow a panel."""
        _inference.check_observed(panel, self.context_length_)
        extended = extend_panel(panel, self.schema_, self.config_.prediction_length, future)
        series = np.arange(len(panel))
        windows = self._predictor.windows(extended, series, panel.lengths)
        return self._predictor.forecast(windows, levels)
