"""What a fitted forecaster becomes outside of this process: files, and back."""

from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from mlrforecast.estimators import _export, _files
from mlrforecast.estimators._backtest import check_count
from mlrforecast.estimators._base import FittedForecaster
from mlrforecast.estimators._card import is_edited
from mlrforecast.estimators._entries import reading_columns, reading_entries
from mlrforecast.estimators._output import default_levels, with_median


class ExchangeMixin(FittedForecaster):
    """Save and load, in folders and on a hub; export; what other libraries take."""

    def save(self, path: str | PathLike[str], *, with_context: bool = False) -> None:
        """Write the fitted forecaster to a folder: safetensors and JSON, no code, no data.

        A card, README.md, says to people what the model is. Once it was edited, it is kept.

        Parameters
        ----------
        path : path
            Folder to create, or an earlier model to replace. Whoever loads it meanwhile, or after
            a save that was cut short, gets the old model or the new one.
        with_context : bool
            Whether to also store the last ``context_length_`` rows of each series given to
            ``fit``, so that ``predict()`` works after ``load``. **They are training data.**
            Without them, time stamps of a rolling calibration are all that is stored of rows.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        TypeError
            If ``path`` is no path.
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
        TypeError
            If ``path`` is no path.
        ModelFileError
            If the files are incomplete, altered, of an unknown version, or were replaced while
            they were read. Checksums find accidents; they are no proof of who wrote a file.
        """
        return _files.load(cls, path, backbone)

    def export(self, path: str | PathLike[str], *, format: str = "torch") -> None:  # noqa: A002
        """Write the network to one file that forecasts without this library.

        It holds the scaling of the contexts and the network, for any number of windows and
        channels: ``torch.export.load`` reads it and its ``module()`` is called, or any runtime of
        ONNX (the export to which needs the extra ``onnx``). :meth:`export_inputs` shows what it is
        given: ``context``, float64 values (B, T, C) in the unit of the series, NaN where missing,
        and the encoded covariates.

        It returns the point forecast (B, F, C), NaN after a context without any value, and
        with ``loss="quantile"`` the quantiles (B, F, C, Q) of the trained levels, with a
        distribution its parameters (B, F, C, P) in the order of its class in
        :mod:`mlrforecast.nn`; all float64 in the unit of the series.

        Parameters
        ----------
        path : path
            File to write, or to replace: ``.pt2`` for torch, ``.onnx`` for ONNX. It appears whole
            or not at all.
        format : {"torch", "onnx"}
            A program of ``torch.export``, or ONNX.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        ValueError
            If the format is unknown, ``path`` has another suffix, the forecaster is calibrated
            (a program holds the network alone, so its intervals would be others), or the network
            cannot be exported, as may be with a ``backbone`` of one's own.
        MissingDependencyError
            If ONNX is not installed.
        OSError
            If ``path`` cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> import torch
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> frame = load_dataset("synthetic").targets
        >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False).fit(frame)
        >>> path = f"{tempfile.mkdtemp()}/forecaster.pt2"
        >>> forecaster.export(path)
        >>> point, quantiles = torch.export.load(path).module()(**forecaster.export_inputs())
        >>> point.shape, quantiles.shape
        (torch.Size([1, 24, 3]), torch.Size([1, 24, 3, 9]))
        """
        check_is_fitted(self, "model_")
        if self.calibration_ is not None:
            raise ValueError(
                "`export` writes the network without its calibration, so that quantiles would "
                "differ from those of `predict`: export before `calibrate`."
            )
        _export.export(self.model_, path, format)

    def export_inputs(self, X: object = None, *, future: object = None) -> dict[str, Tensor]:
        """Return what an exported program is given to forecast the steps that follow a frame.

        Parameters
        ----------
        X, future
            As in :meth:`predict`.

        Returns
        -------
        dict of str to Tensor
            In the order of the program: ``context`` of shape (B, T, C), a window for each series
            of the frame, and of ``past_covariates`` (B, T, K), ``known_covariates``
            (B, T + F, K), ``static_covariates`` (B, K) and ``calendar`` (B, F, K) those that the
            forecaster was fitted with.

        Raises
        ------
        NotFittedError, DataError, ValueError
            As in :meth:`predict`.

        Examples
        --------
        >>> from mlrforecast import MLRForecaster, load_dataset
        >>> frame = load_dataset("synthetic").targets
        >>> forecaster = MLRForecaster(prediction_length=24, max_steps=2, progress=False).fit(frame)
        >>> {name: tuple(tensor.shape) for name, tensor in forecaster.export_inputs().items()}
        {'context': (1, 504, 3), 'calendar': (1, 24, 8)}
        """
        check_is_fitted(self, "model_")
        panel, _ = self._context(X)
        extended = self._extend(panel, future, self.config_.prediction_length)
        windows = self._predictor.windows(extended, np.arange(len(panel)), panel.lengths)
        return _export.inputs_of(windows)

    def to_gluonts(
        self, *, quantile_levels: Sequence[float] | None = None, batch_size: int = 1024
    ) -> Any:
        """Turn the fitted forecaster into a predictor of GluonTS; needs the extra ``gluonts``.

        Its ``predict(dataset)`` yields a forecast for each entry, in their order and a batch at a
        time, ``predict(dataset, num_samples=100)`` one of sample paths;
        ``gluonts.model.evaluate_model`` scores it. ``serialize`` and ``deserialize`` write and
        read it by :meth:`save` and :meth:`load`. It forecasts as many steps as were trained, and
        shares the network with this forecaster.

        Covariates are taken from the fields of entries by their order: numeric ones that are known
        in advance from the rows of ``feat_dynamic_real``, and so on. Categories must be whole
        numbers, as they are in GluonTS.

        Parameters
        ----------
        quantile_levels : sequence of float, optional
            Levels in (0, 1) of forecasts. Default: those that were trained, and 0.5; 0.1, 0.2, ...
            0.9 of a distribution or after :meth:`calibrate`. A forecaster that has points alone
            gives them as mean and as median.
        batch_size : int
            Entries that are read and forecast at once.

        Returns
        -------
        gluonts.model.predictor.Predictor
            An ``mlrforecast.integrations.gluonts.MLRPredictor``.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        MissingDependencyError
            If GluonTS is not installed.
        ValueError
            If a level cannot be had, as in :meth:`predict`; if a covariate has categories that
            are no whole numbers; or after a rolling calibration, which reads all series together,
            and entries come one by one, also those of earlier dates.
        """
        from mlrforecast.integrations import gluonts

        check_is_fitted(self, "model_")
        levels = quantile_levels
        if levels is None:
            levels = with_median(
                default_levels(self.config_, calibrated=self.calibration_ is not None)
            )
        levels = self._check_levels(levels)
        return gluonts.make_predictor(
            reading_entries(self),
            quantile_levels=levels or (),
            batch_size=check_count("batch_size", batch_size),
        )

    def to_chronos(self) -> Any:
        """Turn the fitted forecaster into a pipeline of Chronos; needs the extra ``chronos``.

        It has ``predict``, ``predict_quantiles``, ``predict_df`` and ``predict_fev`` as every
        ``BaseChronosPipeline`` has, with the numbers of :meth:`predict`, for any number of steps.
        After ``import mlrforecast.integrations.chronos`` the folder that :meth:`save` wrote is
        one too: ``BaseChronosPipeline.from_pretrained(folder)``. It shares the network with this
        forecaster.

        Contexts without time stamps, such as tensors, can be forecast by a forecaster that reads
        no covariates and no calendar (``calendar=False``); others take frames, by ``predict_df``.

        Returns
        -------
        chronos.BaseChronosPipeline
            An ``mlrforecast.integrations.chronos.MLRForecasterPipeline``.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        MissingDependencyError
            If Chronos is not installed.
        """
        from mlrforecast.integrations import chronos

        check_is_fitted(self, "model_")
        return chronos.make_pipeline(
            self,
            quantile_levels=with_median(
                default_levels(self.config_, calibrated=self.calibration_ is not None)
            ),
            read_entries=partial(reading_entries, self),
            read_columns=partial(reading_columns, self),
        )

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        branch: str | None = None,
        commit_message: str | None = None,
        token: str | bool | None = None,
        with_context: bool = False,
    ) -> str:
        """Upload the fitted forecaster to the Hugging Face hub; needs the extra ``hub``.

        The files are those of :meth:`save`. Files of an earlier model on the branch are deleted in
        the same commit, and remain in its history; a card that was edited there stays.

        Parameters
        ----------
        repo_id : str
            Repository, ``"owner/name"``; it is made if it is missing.
        private : bool, optional
            Whether a new repository is private. Default: what its owner has set.
        branch : str, optional
            Branch to write to; it is made if it is missing. Default: ``"main"``.
        commit_message : str, optional
            Default: ``"Upload a forecaster"``.
        token : str or bool, optional
            Default: the one that the hub's client has stored.
        with_context : bool
            See :meth:`save`. **The context is training data**, which others may then read.

        Returns
        -------
        str
            Address of the commit.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        MissingDependencyError
            If the client of the hub is not installed.
        HubError
            If the hub cannot be reached, or refuses.
        ValueError
            If ``repo_id`` is no name of a repository, or as :meth:`save`.
        """
        from mlrforecast.integrations import hub

        with TemporaryDirectory() as parent:
            # Before anything is made on the hub: a model that cannot be saved leaves nothing there.
            folder = Path(parent) / "model"
            self.save(folder, with_context=with_context)
            return hub.push_folder(
                folder,
                repo_id,
                is_edited=is_edited,
                private=private,
                branch=branch,
                commit_message=commit_message,
                token=token,
            )

    @classmethod
    def from_hub(
        cls,
        repo_id: str,
        *,
        revision: str | None = None,
        cache_dir: str | PathLike[str] | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
        backbone: nn.Module | None = None,
    ) -> Self:
        """Read a forecaster from the Hugging Face hub; needs the extra ``hub``.

        Parameters
        ----------
        repo_id : str
            Repository, ``"owner/name"``.
        revision : str, optional
            Branch, tag or commit. Default: ``"main"``.
        cache_dir : path, optional
            Folder of downloads. Default: that of the hub's client.
        token : str or bool, optional
            Default: the one that the hub's client has stored.
        local_files_only : bool
            Whether to look among earlier downloads only, as where HF_HUB_OFFLINE is set.
        backbone : Module, optional
            See :meth:`load`.

        Returns
        -------
        MLRForecaster
            As :meth:`load` gives it; nothing in the files is executed.

        Raises
        ------
        MissingDependencyError
            If the client of the hub is not installed.
        HubError
            If the hub cannot be reached and there is no earlier download, or it has no such model.
        ModelFileError
            As :meth:`load`.
        ValueError
            If ``repo_id`` is no name of a repository.
        """
        from mlrforecast.integrations import hub

        folder = hub.pull_folder(
            repo_id,
            revision=revision,
            cache_dir=cache_dir,
            token=token,
            local_files_only=local_files_only,
        )
        return cls.load(folder, backbone=backbone)
