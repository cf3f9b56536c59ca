"""What a fitted forecaster becomes outside of this process: files, and back."""

from os import PathLike
from typing import Self

from sklearn.utils.validation import check_is_fitted
from torch import nn

from mlrforecast.estimators import _files
from mlrforecast.estimators._base import FittedForecaster


class ExchangeMixin(FittedForecaster):
    """Save and load."""

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
