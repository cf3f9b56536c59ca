"""What a fitted estimator looks at, rests on, and consists of."""

from typing import Any

import pandas as pd
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from mlrforecast.estimators import _backtest, _importance
from mlrforecast.estimators._attention import attention_by_level
from mlrforecast.estimators._base import FittedForecaster
from mlrforecast.estimators._summary import Summary, summarise


class InspectionMixin(FittedForecaster):
    """What lets one look into a fitted estimator."""

    def attention_by_level(self, X: object = None) -> pd.DataFrame:
        """Tell how far the network looks: its attention weights, shared out among the levels.

        The network runs on the newest context of each series. Each attention weight belongs to the
        finest level whose block holds both of its tokens, and is averaged over heads, tokens and
        series. Tokens without any observed value, and so padding, are left out.

        Parameters
        ----------
        X : DataFrame, Series or ndarray, optional
            As in :meth:`predict`.

        Returns
        -------
        DataFrame
            A row for each layer and level, coarse to fine, with the columns

            - ``layer`` and ``level``, from 1. A layer whose score has no levels of steps has one
              row, of level 0; so have pairs that share no block, with ``unshared="zero"``.
            - ``block``: steps of a block, at most the context. Of ``"mlr_window"`` the coarsest
              level has the steps of its window, to both sides.
            - ``share``: part of the weight of the layer, 0 to 1; those of a layer sum to 1.
            - ``even_share``: what it would be if each token looked at all others alike.
            - ``distance``: mean distance of this weight in steps; NaN where there is none.

            :func:`mlrforecast.plots.plot_attention` draws it.

        Raises
        ------
        NotFittedError, DataError, ValueError
            As in :meth:`predict`; also if a ``backbone`` has no layers that can be read so.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> frame = load_dataset("synthetic").targets
        >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
        >>> table = forecaster.fit(frame).attention_by_level()
        >>> table["level"].tolist()
        [1, 2, 3, 1, 2, 3]
        >>> table.groupby("layer")["share"].sum().round(6).tolist()
        [1.0, 1.0]
        """
        check_is_fitted(self, "model_")
        panel, _ = self._context(X)
        return attention_by_level(self._predictor, panel)

    def permutation_importance(
        self,
        X: object,
        *,
        windows: int | None = None,
        step: int | None = None,
        n_repeats: int = 5,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Tell how much forecasts rest on each covariate: their error when it is shuffled.

        The windows of :meth:`backtest` are forecast again with the rows of one covariate in random
        order, those of a static one over the series, and those of the calendar together. The
        others stay as they are, so that two covariates that say the same may both seem of little
        use. What is measured is this network, on these rows; it is no proof of a cause.

        Parameters
        ----------
        X : DataFrame, Series or ndarray
            As in :meth:`backtest`. Rows that ``fit`` has not seen tell more.
        windows, step : int, optional
            As in :meth:`backtest`.
        n_repeats : int
            Times that each covariate is shuffled.
        seed : int
            Seed of the order of rows.

        Returns
        -------
        DataFrame
            A row for each covariate, the most important first, with the columns ``covariate``,
            ``role`` (``"known"``, ``"past"``, ``"static"`` or ``"calendar"``), ``importance``, the
            mean rise of the mean absolute error as a share of it (1: the error doubles), and
            ``std``, its standard deviation over the repeats. Errors are in units of the standard
            deviation of their series. :func:`mlrforecast.plots.plot_importance` draws it.

        Raises
        ------
        NotFittedError, DataError, ValueError, TypeError
            As in :meth:`backtest`; also if there are neither covariates nor a calendar.

        References
        ----------
        Breiman, Random Forests, Machine Learning 2001. Fisher, Rudin, Dominici, All Models are
        Wrong, but Many are Useful, JMLR 2019.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> frame = load_dataset("synthetic").targets
        >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
        >>> table = forecaster.fit(frame).permutation_importance(frame, windows=3)
        >>> table["covariate"].tolist(), list(table.columns)
        (['calendar'], ['covariate', 'role', 'importance', 'std'])
        """
        check_is_fitted(self, "model_")
        windows = None if windows is None else _backtest.check_count("windows", windows)
        step = self.config_.prediction_length if step is None else step
        panel = self._read(X)
        cutoffs = _backtest.find_cutoffs(
            panel, self.config_, windows=windows, step=_backtest.check_count("step", step)
        )
        return _importance.permutation_importance(
            self._predictor,
            panel,
            self._predictor.windows(panel, cutoffs.series, cutoffs.num_rows),
            n_repeats=n_repeats,
            seed=seed,
        )

    def summary(self) -> Summary:
        """Say what was fitted, on what, and how well its intervals are calibrated.

        Returns
        -------
        Summary
            Its ``sections`` are ``data``, ``network`` (with the levels of the attention in steps,
            and the FLOPs of a forecast as the paper counts them), ``training`` and
            ``calibration``. It prints as text, and shows as a table in a notebook.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> frame = load_dataset("synthetic").targets
        >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
        >>> summary = forecaster.fit(frame).summary()
        >>> summary.sections["network"]["attention"]
        'mlr in 2 layers'
        >>> print(summary)  # doctest: +ELLIPSIS
        data
          series      3 columns: ...
        """
        check_is_fitted(self, "model_")
        return summarise(self)

    # In place of scikit-learn's, whose names have changed between its versions (_html_repr since
    # 1.7); these two methods are in all of 1.6 to 1.9, and the first is what _repr_html_ gives.
    def _repr_html_inner(self) -> str:
        """Show the parameters, and once fitted the summary below them."""
        shown: str = estimator_html_repr(self)
        return shown + self.summary()._repr_html_() if hasattr(self, "model_") else shown

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """Show the same in a notebook."""
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle
