"""The switches by which a user says that there is no internet."""

import os

_SWITCHES = ("MLRFORECAST_OFFLINE", "HF_HUB_OFFLINE")
_ON = ("1", "true", "yes", "on")


def offline_switch() -> str:
    """Name the environment variable that switches downloads off, if there is one.

    Returns
    -------
    str
        Such as ``"HF_HUB_OFFLINE=1"``; empty if none does.

    Examples
    --------
    >>> import os
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, {"MLRFORECAST_OFFLINE": "yes"}):
    ...     offline_switch()
    'MLRFORECAST_OFFLINE=yes'
    """
    for name in _SWITCHES:
        if os.environ.get(name, "").strip().lower() in _ON:
            return f"{name}={os.environ[name]}"
    return ""
