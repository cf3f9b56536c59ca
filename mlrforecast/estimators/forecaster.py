"""The estimator: frames in, forecasts out, on the scikit-learn contract."""

from collections.abc import Hashable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import nn

from mlrforecast.data import write_forecast
from mlrforecast.estimators import (
    _backtest,
    _calibration,
    _parameters,
    _paths,
)
from mlrforecast.estimators._evaluation import EvaluationMixin
from mlrforecast.estimators._exchange import ExchangeMixin
from mlrforecast.estimators._forecasts import has_quantiles
from mlrforecast.estimators._inspection import InspectionMixin
from mlrforecast.estimators._output import (
    choose_items,
    default_levels,
    first_items,
    wide_forecast,
    wide_history,
)
from mlrforecast.estimators._training import TrainingMixin
from mlrforecast.plots import plot_forecast


class MLRForecaster(TrainingMixin, EvaluationMixin, ExchangeMixin, InspectionMixin):
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
        Steps that a forecast reads. Default: half of the longest series, at most 504, in
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
    season_length : int, optional
        Steps of the main season, in which scaled errors and simple forecasts are counted, and by
        which the regression (``linear_share``) reads a context. Default: that of the frequency: 24
        for hours, 12 for months, 1 for days and weeks.
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
        Steps of a token; 1 gives the point tokens of the paper. Default: the longest of 1,
        2, 3, 4, 6, 8, 12, 16 and 24 that cuts the context into at least 20 tokens.
    patch_stride : int, optional
        Steps from one patch to the next. Default: ``patch_length``.
    width, num_heads, num_layers, hidden_width : int
        Model width, attention heads, encoder blocks, width of the feed-forward networks.
    dropout, head_dropout : float
        Dropout probability in the encoder and before the head, in [0, 1).
    loss : {"quantile", "mae", "mse", "normal", "student_t", "negative_binomial"}
        What is trained: a median with quantiles around it; a point forecast on the absolute or
        the squared error; or a distribution on its likelihood, ``"student_t"`` where there are
        outliers, ``"negative_binomial"`` for counts.
    quantile_levels : sequence of float
        Increasing levels in (0, 1) that the quantile loss trains; ``predict`` can be asked for
        any other too.
    frequency_weight : float
        Weight, 0 to 1, of the error of the forecast's Fourier coefficients in the loss; the loss
        of a distribution has no such part.
    linear_share : float, optional
        Share, from 0 to below 1, of a ridge regression on the context and the covariates in the
        forecast; the rest is the network's. The two err in different ways, so that their mean errs
        less than either. The regression is drawn to one by seasons, ``season_length`` steps each,
        see :func:`mlrforecast.training.solve_linear`. The network forecasts alone where the
        regression would read more than 4096 numbers, and counts (``loss="negative_binomial"``).
        Default: ``1 - 0.5 * sqrt(48 / prediction_length)``, and 0.5 for up to 48 steps.
    backbone : Module, optional
        Any encoder called as ``backbone(tokens, key_mask)`` with tokens of shape (B, N, D) in
        and out, ``D`` being ``width``, and ``key_mask`` of shape (B, N) or None. It is copied;
        ``attention`` and its options, ``num_heads``, ``num_layers`` and ``hidden_width`` then
        have no effect.
    max_steps : int, optional
        Optimiser steps. Default: 9 times the square root of the number of windows, from 100
        to 2400; of a ``prediction_length`` above 48, ``48 / prediction_length`` of the windows
        count.
    batch_size : int or "auto"
        Windows of one series in each step. ``"auto"``: the largest power of two, from 16 to
        4096, that is estimated to fill at most 80 % of the memory there is.
    learning_rate, weight_decay : float
        Of AdamW. The rate rises in ``warmup_steps`` and then follows ``schedule``.
    parametrization : {"standard", "mup"}
        One learning rate for all parameters, or the start and the rates of muP (maximal update
        parametrisation), so that a rate found for a small network fits a large one:
        ``learning_rate`` is then that of a network of width 768, and a matrix that reads ``n``
        numbers has ``768 / n`` times as much. The weights of a ``backbone`` are started anew too.
    schedule : {"cosine", "linear", "constant"}
        How the learning rate goes on after the warm-up: down to 0 in a half cosine or a straight
        line, or not.
    warmup_steps : int, optional
        Steps in which the learning rate rises from 0. Default: a tenth of all, at most 200.
    gradient_clip : float, optional
        Largest norm of the gradient; None does not clip it.
    ema_decay : float, optional
        Decay, in (0, 1), of an exponential moving average of the weights that takes the place of
        the last weights: about ``1 / (1 - ema_decay)`` steps are averaged.
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
    devices : int
        GPUs, or processes of the CPU, that share the windows of each training step. More than
        one need a script whose entry is guarded by ``if __name__ == "__main__":``.
    precision : {"32-true", "bf16-mixed", "16-mixed"}
        Numbers that the network computes with in training; the short ones are faster on a GPU.
        Weights, and forecasts, are float32.
    compile : bool
        Whether ``torch.compile`` makes the training step, after a wait of some ten seconds. It is
        meant for GPUs; a CPU needs a C++ compiler for it and is slower with it.
    checkpoint_dir : path, optional
        Folder of checkpoints. A fit that was interrupted, by whatever, goes on from there when it
        is started again with the same data and parameters, and ends with the same weights; one
        that has ended is done at once. The same holds for each fit that :meth:`backtest` and
        :meth:`calibrate` make. Default: there are none.
    logger : {"csv", "tensorboard", "mlflow"} or sequence of them, optional
        Where losses and learning rate are logged, below ``log_dir``; MLflow's to the server in
        ``MLFLOW_TRACKING_URI``, if that is set.
    log_dir : path, optional
        Folder of the logs; needed with a ``logger``.
    warm_start : bool
        Whether a further ``fit`` goes on from the weights of the one before, like
        :meth:`partial_fit`.
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
        Steps of the main season, used by ``score`` and ``backtest``.
    dependence_ : ndarray of shape (F,)
        How errors some steps apart correlate inside a forecast, used by ``predict_samples``.
    calibration_ : Calibration or None
        What :meth:`calibrate` has learnt.
    num_parameters_ : int
        Trained numbers of the network.
    num_steps_ : int
        Optimiser steps that were made, in all fits that began with the weights of another.
    batch_size_ : int
        Windows in each of the last ones.
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
        season_length: int | None = None,
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
        frequency_weight: float = 0.9,
        linear_share: float | None = None,
        backbone: nn.Module | None = None,
        max_steps: int | None = None,
        batch_size: int | str = 256,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        parametrization: str = "standard",
        schedule: str = "cosine",
        warmup_steps: int | None = None,
        gradient_clip: float | None = 1.0,
        ema_decay: float | None = None,
        early_stopping: bool = False,
        patience: int = 5,
        max_time: timedelta | float | None = None,
        seed: int = 0,
        accelerator: str = "auto",
        devices: int = 1,
        precision: str = "32-true",
        compile: bool = False,  # noqa: A002
        checkpoint_dir: str | PathLike[str] | None = None,
        logger: str | Sequence[str] | None = None,
        log_dir: str | PathLike[str] | None = None,
        warm_start: bool = False,
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
        self.season_length = season_length
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
        self.linear_share = linear_share
        self.backbone = backbone
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.parametrization = parametrization
        self.schedule = schedule
        self.warmup_steps = warmup_steps
        self.gradient_clip = gradient_clip
        self.ema_decay = ema_decay
        self.early_stopping = early_stopping
        self.patience = patience
        self.max_time = max_time
        self.seed = seed
        self.accelerator = accelerator
        self.devices = devices
        self.precision = precision
        self.compile = compile
        self.checkpoint_dir = checkpoint_dir
        self.logger = logger
        self.log_dir = log_dir
        self.warm_start = warm_start
        self.progress = progress

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def calibrate(
        self,
        X: object,
        *,
        method: str = "split",
        windows: int | None = None,
        step: int | None = None,
        refit: bool = True,
    ) -> Self:
        """Learn from forecasts of the past how wide intervals must be to hold what they promise.

        Conformal calibration: forecasts of the newest windows in a frame are compared with what
        followed, in units of their own spread, and every later quantile lies as far from the
        centre as that share of these residuals did. If later windows are like these ones, an
        80 % interval holds 80 % of the values, whatever the network believes. Point forecasts
        stay the same. It gives quantiles to ``loss="mse"`` and ``"mae"`` too.

        Parameters
        ----------
        X : DataFrame, Series or ndarray
            The frame of ``fit``, or a newer one.
        method : {"split", "rolling"}
            ``"split"``: the residuals stay as they are. ``"rolling"``: rows that a later frame
            has beyond these, of all series in it together, add residuals of the same network, and
            as many of the oldest ones go, so that intervals follow a change of the errors.
        windows : int, optional
            Windows of each series, counted back from its newest row. Default: about 20 that lie
            in the newest fifth of the longest series.
        step : int, optional
            Rows from one window to the next; windows may overlap. Default:
            ``prediction_length`` if ``windows`` is given, otherwise what spreads them evenly.
        refit : bool
            Whether the residuals are those of a second network, trained in the same way on the
            rows before these windows alone; it is dropped afterwards. False: those of this
            network. That is quicker, and right only for rows that ``fit`` has not seen: on
            others intervals become too narrow.

        Returns
        -------
        MLRForecaster
            The forecaster itself, calibrated; ``calibration_.coverage`` reports what it brought.

        Raises
        ------
        NotFittedError, ValueError, TypeError
            If ``fit`` has not been called, or an argument is out of its range.
        DataError
            If the frame breaks a rule, or is too short. The forecaster is as before then.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> frame = load_dataset("synthetic").targets
        >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
        >>> forecaster.fit(frame).calibrate(frame).calibration_
        Calibration(method: split, windows: 19, residuals: 1308)
        >>> list(forecaster.calibration_.coverage.columns)
        ['before', 'after', 'width']
        """
        check_is_fitted(self, "model_")
        checked = _calibration.check_method(method)
        if not isinstance(refit, bool | np.bool_):
            raise TypeError(f"`refit` must be True or False, got {refit!r}.")
        counts = {"windows": windows, "step": step}
        given = {
            name: None if value is None else _backtest.check_count(name, value)
            for name, value in counts.items()
        }
        panel = self._read(X)
        count, step = _backtest.calibration_windows(panel, self.config_, **given)
        cutoffs = _backtest.find_cutoffs(panel, self.config_, windows=count, step=step)
        every = int(cutoffs.places.max()) + 1 if refit else 0
        found, actual = self._forecast_cutoffs(panel, cutoffs, step=step, every=every)
        self.calibration_ = _calibration.calibrate(
            found,
            actual,
            panel=panel,
            cutoffs=cutoffs,
            method=checked,
            step=step,
        )
        return self

    def predict(
        self,
        X: object = None,
        *,
        future: object = None,
        prediction_length: int | None = None,
        quantile_levels: Sequence[float] | None = None,
    ) -> Any:
        """Forecast the steps that follow a frame.

        Parameters
        ----------
        X : DataFrame, Series or ndarray, optional
            A frame in any form, or entries of GluonTS, of the frequency of the one given to
            ``fit``, with the same covariates; series and targets may be new. Only the last
            ``context_length_`` rows of each series are read, and after a rolling calibration
            those that are newer than it. Default: the last ``context_length_`` rows of the frame
            of ``fit``.
        future : DataFrame, optional
            The ``known_covariates`` of the steps to forecast: a frame in the form of ``X`` with
            its time, its items if it is a long one, and these columns. It may hold more rows and
            columns, which are not read. Needed if there are known covariates, unless ``X`` are
            entries whose features go on after the target.
        prediction_length : int, optional
            Steps to forecast. Fewer than were trained are the first ones of the same forecast.
            More are forecast block by block, each of which reads the point forecasts before it;
            for quantiles, it reads sample paths instead, so that they widen as the uncertainty
            adds up. Default: as trained.
        quantile_levels : sequence of float, optional
            Levels in (0, 1) to forecast too; they never cross. Of ``loss="quantile"``, those
            between and beyond the trained ones lie on a straight line over the quantiles of the
            normal distribution. After :meth:`calibrate` they are calibrated.

        Returns
        -------
        DataFrame, Series or ndarray
            In the form, and of the library, of ``X``.

            - Wide: the future stamps and the target columns. With ``quantile_levels`` each column
              becomes a group: ``forecast["load"]["0.9"]``, and ``forecast["load"]["point"]``;
              where time is a column, there are the columns ``"load"`` and ``"load_0.9"``.
            - Long, or entries: items, future stamps and targets, and a column a level, named
              ``"0.9"``. One multivariate entry is a wide frame.
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
            If a level is not in (0, 1), or the loss has no quantiles and nothing was calibrated,
            or ``X`` is omitted after ``load``.
        """
        check_is_fitted(self, "model_")
        horizon = self._check_horizon(prediction_length)
        levels = self._check_levels(quantile_levels)
        X, future = self._unfold(X, future)
        panel, residuals = self._context(X)
        names = None if levels is None else [f"{level:g}" for level in levels]
        extended = self._extend(panel, future, horizon)
        forecast = self._forecaster_of(residuals)
        made = self._forecast(extended, panel.lengths, horizon, levels, forecast)
        return write_forecast(panel, *made, names)

    def predict_samples(
        self,
        X: object = None,
        *,
        future: object = None,
        prediction_length: int | None = None,
        num_samples: int = 100,
        seed: int = 0,
    ) -> Any:
        """Draw sample paths of the steps that follow a frame.

        At each step the samples have the distribution that ``predict`` gives quantiles of.
        Inside a path, steps depend on each other as the errors of forecasts of the training rows
        do (a Gaussian copula), so that sums and maxima over steps have a plausible spread.

        Parameters
        ----------
        X, future, prediction_length
            As in :meth:`predict`.
        num_samples : int
            Paths of each series.
        seed : int
            Seed of the draw. The same random numbers serve every series, so that the samples of
            one do not depend on which others are there; paths of different series are therefore
            no draw from their joint distribution.

        Returns
        -------
        DataFrame, Series or ndarray
            As :meth:`predict` with quantiles, with ``"sample_0"``, ``"sample_1"``, ... in place
            of levels; of an array those alone, of shape (F, K) or (F, C, K).

        Raises
        ------
        NotFittedError, DataError, ValueError, TypeError
            As in :meth:`predict`.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> frame = load_dataset("synthetic").targets
        >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
        >>> samples = forecaster.fit(frame).predict_samples(num_samples=50)["load_1"]
        >>> samples.drop(columns="point").sum().shape
        (50,)
        """
        check_is_fitted(self, "model_")
        horizon = self._check_horizon(prediction_length)
        num_samples = _backtest.check_count("num_samples", num_samples)
        seed = _backtest.check_count("seed", seed, least=0)
        self._check_has_spread()
        X, future = self._unfold(X, future)
        panel, residuals = self._context(X)
        extended = self._extend(panel, future, horizon)
        forecast = self._forecaster_of(residuals)
        point, _ = self._forecast(extended, panel.lengths, horizon, None, forecast)
        samples = _paths.sample_paths(
            forecast,
            extended,
            panel.lengths,
            horizon,
            self._noise(horizon, num_paths=num_samples, seed=seed),
        )
        names = [f"sample_{number}" for number in range(num_samples)]
        return write_forecast(panel, point, samples, names)

    def plot(
        self,
        X: object = None,
        *,
        future: object = None,
        prediction_length: int | None = None,
        quantile_levels: Sequence[float] | None = None,
        items: Sequence[Hashable] | None = None,
        max_items: int = 4,
    ) -> NDArray[Any]:
        """Draw the end of the history and the forecast that follows it.

        Parameters
        ----------
        X, future, prediction_length
            As in :meth:`predict`.
        quantile_levels : sequence of float, optional
            Levels of the fan. Default: 0.1, 0.2, ... 0.9, if there are quantiles; of
            ``loss="quantile"`` without calibration, all that were trained.
        items : sequence of hashable, optional
            Series of a long frame, or columns of a wide one, to draw. Default: the first ones.
        max_items : int
            Columns or series to draw at most.

        Returns
        -------
        ndarray of Axes
            One a series; nothing is shown or saved.

        Raises
        ------
        NotFittedError, DataError, ValueError, TypeError
            As in :meth:`predict`; also if there is no such item.
        """
        check_is_fitted(self, "model_")
        horizon = self._check_horizon(prediction_length)
        if quantile_levels is None:
            quantile_levels = default_levels(self.config_, calibrated=self.calibration_ is not None)
        levels = self._check_levels(quantile_levels)
        max_items = _backtest.check_count("max_items", max_items)
        X, future = self._unfold(X, future)
        panel, residuals = self._context(X)
        chosen = panel if items is None else choose_items(panel, items)
        shown = first_items(chosen, max_items)
        extended = self._extend(shown, future, horizon)
        forecast = self._forecaster_of(residuals)
        made = self._forecast(extended, shown.lengths, horizon, levels, forecast)
        history = wide_history(shown, 3 * horizon)
        ahead = wide_forecast(shown, *made, levels)
        axes = plot_forecast(history, ahead, history_length=len(history), max_items=max_items)
        if (hidden := len(chosen.labels) - len(axes)) > 0:
            axes[-1].set_xlabel(f"and {hidden} more, not drawn")
        return axes

    def _check_has_spread(self) -> None:
        """Raise a ValueError if there is no distribution to draw from."""
        if self.calibration_ is None and not has_quantiles(self.config_):
            raise ValueError(
                f"`predict_samples` needs a distribution, and loss={self.config_.loss!r} with "
                "these `quantile_levels` has none: choose another loss, or learn one from its "
                "errors with `calibrate`."
            )

    def _check_horizon(self, prediction_length: int | None) -> int:
        """Return the steps to forecast."""
        if prediction_length is None:
            return self.config_.prediction_length
        return _backtest.check_count("prediction_length", prediction_length)
