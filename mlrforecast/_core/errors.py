"""The errors that the library raises on purpose.

::

    MLRForecastError
    ├── DataError (ValueError)             a frame, column, series or corpus breaks a rule
    ├── BackendError (ValueError)          a backend asked for by name cannot serve a case
    ├── ModelFileError (ValueError)        a saved model is missing a part or was altered
    ├── ChecksumError (ValueError)         a data file is not the one that the catalogue names
    ├── DatasetNotFoundError (FileNotFoundError)   a data file is nowhere to be had
    ├── HubError (OSError)                 a hub did not give or take a model or text
    ├── TuningError (RuntimeError)         a sweep has no result
    └── MissingDependencyError (ImportError)       an optional extra is not installed

A wrong argument raises a plain ``ValueError`` or ``TypeError`` that names it.
"""


class MLRForecastError(Exception):
    """Base of every error defined by the library."""


class DataError(MLRForecastError, ValueError):
    """Data break a rule; the message names the frame, column, series or file, and the value."""


class BackendError(MLRForecastError, ValueError):
    """A backend that was asked for by name cannot serve the case; the message says why."""


class ModelFileError(MLRForecastError, ValueError):
    """A saved model is incomplete, altered or of an unknown version."""


class ChecksumError(MLRForecastError, ValueError):
    """A data file differs from the one that its card describes."""


class DatasetNotFoundError(MLRForecastError, FileNotFoundError):
    """A data file was found neither in a folder nor online; the message says what was tried."""


class HubError(MLRForecastError, OSError):
    """A hub did not give or take a model, or give text; the message says what was tried."""


class TuningError(MLRForecastError, RuntimeError):
    """A sweep has no result; the message says what became of its trials."""


class MissingDependencyError(MLRForecastError, ImportError):
    """An optional extra is needed and not installed; the message gives the install command."""
