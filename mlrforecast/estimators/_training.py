"""What trains the estimator: from nothing, or on from the weights it has."""

from typing import Any, Self

from mlrforecast._core import devices
from mlrforecast.data import FileDataset, Panel, read_panel
from mlrforecast.data.gluonts import unfold_entries
from mlrforecast.estimators import _parameters
from mlrforecast.estimators._base import FittedForecaster
from mlrforecast.estimators._fitting import Fitted, count_memory, fit_panel, set_up
from mlrforecast.training import MemoryEstimate, isolated_seed
from mlrforecast.training.team import Team


class TrainingMixin(FittedForecaster):
    """What trains the network of an estimator."""

    warm_start: bool

    def fit(self, X: object, y: None = None, *, distributed: Any = None) -> Self:
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
            A series needs two rows. Entries of GluonTS are read too; all their features are
            covariates, unless parameters name some. A :class:`mlrforecast.data.FileDataset` is
            read block by block, for data that memory cannot hold; no ``context_`` is kept of it.
        y : None
            Not used; here for scikit-learn.
        distributed : {"ray"} or RayWorkers, optional
            What starts the processes that the ``devices`` are, one each: ``"ray"`` for workers of
            the Ray cluster that the process is connected to, or else of a Ray on this machine
            alone; a :class:`mlrforecast.integrations.RayWorkers` to say which cluster and what
            a worker takes of it. They need the package too. Default: processes of this machine.

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
        MemoryError
            If training needs more memory than there is, as far as can be told before it starts.
        OSError
            If the scratch files of a FileDataset find no room.
        FloatingPointError
            If training diverged; the forecaster is as it was before.
        ModelFileError
            If a file in ``checkpoint_dir`` was altered or cut short.
        ConnectionError, RuntimeError
            If there is no such cluster, or a worker was lost for good.
        """
        _refuse_y(y)
        if self.warm_start and hasattr(self, "model_"):
            return self.partial_fit(X, distributed=distributed)
        self.check_parameters()
        team = _team_of(distributed, X)
        parameters = _parameters.plain_parameters(self)
        schema = _parameters.to_schema(parameters)
        # Reading a frame swaps the filters of warnings, which belong to the process too.
        with isolated_seed(parameters["seed"]):
            X, _, schema = unfold_entries(X, schema, find_roles=True)
            panel = read_panel(X, schema, progress=self.progress)
            fitted = fit_panel(panel, parameters, self.backbone, team=team)
        self._set_fitted(fitted, schema=schema, freq=panel.freq, context=_newest(panel, fitted))
        self._note_features(_parameters.names_of_columns(X))
        return self

    def partial_fit(self, X: object, y: None = None, *, distributed: Any = None) -> Self:
        """Go on training the fitted network, on the windows of another frame alone.

        The network and the way that covariates are read stay; the optimiser and the schedule of
        the learning rate begin anew. To fine-tune a network gently, set a lower ``learning_rate``
        and ``max_steps`` first. A calibration is dropped, for the errors are others. Without an
        earlier fit this is :meth:`fit`.

        Parameters
        ----------
        X : DataFrame, Series or ndarray
            A frame as in :meth:`predict`; series and targets may be new.
        y : None
            Not used; here for scikit-learn.
        distributed : {"ray"} or RayWorkers, optional
            As in :meth:`fit`.

        Returns
        -------
        MLRForecaster
            The forecaster itself.

        Raises
        ------
        DataError, TypeError, MemoryError, FloatingPointError, ModelFileError, ConnectionError
            As in :meth:`fit`; the forecaster is as it was before.
        ValueError
            If a parameter is out of its range, or one of the network was changed since it was
            made.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> frame = load_dataset("synthetic").targets
        >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False)
        >>> forecaster.fit(frame[:500]).num_steps_
        2
        >>> forecaster.set_params(learning_rate=1e-4, max_steps=3).partial_fit(frame[400:])
        MLRForecaster(learning_rate=0.0001, max_steps=3, prediction_length=24,
                      progress=False)
        >>> forecaster.num_steps_
        5
        """
        _refuse_y(y)
        if not hasattr(self, "model_"):
            return self.fit(X, distributed=distributed)
        self.check_parameters()
        team = _team_of(distributed, X)
        parameters = _parameters.as_fitted(_parameters.plain_parameters(self), self.schema_)
        _parameters.check_agreement(parameters, self.config_, self.schema_)
        _parameters.check_backbone(self.backbone, self.model_)
        start = Fitted(
            self.model_, self.encoding_, self.dependence_, self.num_steps_, self.batch_size_
        )
        with isolated_seed(parameters["seed"]):
            X, _ = self._unfold(X)
            panel = self._read(X)
            fitted = fit_panel(panel, parameters, self.backbone, start=start, team=team)
        context = _newest(panel, fitted)
        self._set_fitted(fitted, schema=self.schema_, freq=self.freq_, context=context)
        self._note_features(_parameters.names_of_columns(X))
        return self

    def estimate_memory(self, X: object) -> MemoryEstimate:
        """Count the memory that ``fit`` would need, without fitting.

        Parameters
        ----------
        X : DataFrame, Series or ndarray
            The frame that ``fit`` would be given.

        Returns
        -------
        MemoryEstimate
            Bytes of the weights, their gradients, the optimiser, the activations of a step and
            the data; on each device, and beside what the frame and the libraries take.

        Raises
        ------
        DataError, TypeError, ValueError
            As in :meth:`fit`.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> frame = load_dataset("synthetic").targets
        >>> estimate = MLRForecaster(prediction_length=24, batch_size=64).estimate_memory(frame)
        >>> estimate.optimizer == 2 * estimate.gradients
        True
        """
        self.check_parameters()
        parameters = _parameters.plain_parameters(self)
        with isolated_seed(parameters["seed"]):
            schema = _parameters.to_schema(parameters)
            X, _, schema = unfold_entries(X, schema, find_roles=True)
            panel = read_panel(X, schema)
            return count_memory(set_up(panel, parameters, self.backbone))

    def check_parameters(self) -> None:
        """Check all about the parameters that can be checked without data; ``fit`` does it first.

        What is left to ``fit`` is whether series are long enough, and whether a ``backbone``
        accepts and returns tokens.

        Raises
        ------
        ValueError, TypeError
            If a parameter is out of its range or of another type, two do not go together, or the
            ``accelerator`` is not there.
        MissingDependencyError
            If the package of a ``logger`` is not installed.

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
        devices.find_device(self.accelerator)


def _newest(panel: Panel, fitted: Fitted) -> Panel | None:
    """Return the rows of a panel that a forecast would read, None of what memory may not hold."""
    if not panel.storage.in_memory:
        return None
    return panel.tail(fitted.model.config.context_length)


def _team_of(distributed: Any, X: object) -> Team | None:
    """Return what starts the processes of a fit, None for those of this machine."""
    if distributed is None:
        return None
    from mlrforecast.integrations import RayWorkers

    team = RayWorkers() if isinstance(distributed, str) and distributed == "ray" else distributed
    if not isinstance(team, RayWorkers):
        raise ValueError(f"`distributed` must be None, 'ray' or RayWorkers, got {distributed!r}.")
    if isinstance(X, FileDataset):
        raise ValueError(
            "`distributed` must be None for a FileDataset: workers of other machines do not share "
            "its scratch files. Fit on a frame."
        )
    return team


def _refuse_y(y: Any) -> None:
    if y is not None:
        raise ValueError("`y` must be None: the targets are the columns of `X`.")
