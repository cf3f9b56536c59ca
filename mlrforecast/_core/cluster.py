"""Connections to Ray: one that is there, a cluster by its address, or a local Ray for a while."""

import logging
import os
import random
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import numpy as np

from mlrforecast._core.optional import import_optional

# Ray puts unix sockets about 70 characters below its session folder; a path to one holds 103.
_LONGEST_BASE = 24
_SECONDS_TO_ANSWER = 10.0
# A head starts a server for each client. One that dies at its start, as on a port that another
# process took meanwhile, is replaced by the next on another port.
_SERVER_DIED = ("Starting Ray client server failed", "Proxy failed to Connect to backend")
_CLIENT_ATTEMPTS = 3


@contextmanager
def connected(
    address: str | None = None,
    *,
    num_cpus: int | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    quiet: bool = True,
    purpose: str = "Work on Ray",
) -> Iterator[ModuleType]:
    """Connect to Ray, or start a local one, for the length of a block.

    A Ray that the process is already connected to is used as it is, and stays connected. What the
    block starts it ends: processes, session folder, environment variables, signal handlers.

    Parameters
    ----------
    address : str or None
        ``"host:port"``, ``"ray://host:port"`` (Ray client) or ``"auto"`` (the cluster that this
        machine belongs to). None starts a Ray on this machine alone.
    num_cpus : int or None
        CPUs of a local Ray; None takes all of the machine.
    runtime_env : mapping or None
        What the workers need, as ``ray.init`` takes it.
    quiet : bool
        Whether to keep Ray's own messages, and those of its workers, from the terminal.
    purpose : str
        What needs Ray, as the beginning of a sentence, for the error where it is not installed.

    Yields
    ------
    module
        The module ``ray``, connected.

    Raises
    ------
    ValueError
        If ``address`` is none of these forms, or ``num_cpus`` or ``runtime_env`` are given for a
        Ray that they cannot change.
    ConnectionError
        If nothing answers there.

    Examples
    --------
    >>> with connected("nowhere"):
    ...     pass
    Traceback (most recent call last):
    ...
    ValueError: `address` must be "auto", "host:port" or "ray://host:port", got 'nowhere'.
    """
    _check_address(address)
    ray = import_optional("ray", extra="tune", purpose=purpose)
    with ExitStack() as stack:
        stack.enter_context(_hushed(quiet))
        if ray.is_initialized():
            _check_unused("already connected", num_cpus=num_cpus, runtime_env=runtime_env)
        else:
            stack.enter_context(_process_state_kept(ray))
            options: dict[str, Any] = {"runtime_env": dict(runtime_env)} if runtime_env else {}
            if quiet:
                options |= {"logging_level": logging.CRITICAL, "log_to_driver": False}
            if address is None:
                stack.enter_context(_local(ray, num_cpus, options))
            else:
                _check_unused("running elsewhere", num_cpus=num_cpus)
                stack.callback(_shut_down, ray)
                _join(ray, address, options)
        yield ray


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put the generators of Python and NumPy back after a block in which Ray draws from them.

    Examples
    --------
    >>> state = random.getstate()
    >>> with random_state_kept():
    ...     _ = random.random()
    >>> random.getstate() == state
    True
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002


def _check_address(address: str | None) -> None:
    """Complain about an address of no known form."""
    if address is None or address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(
            f'`address` must be "auto", "host:port" or "ray://host:port", got {address!r}.'
        )


def _check_unused(state: str, **given: object) -> None:
    """Complain about settings that a Ray in this state cannot take."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"`{name}` must be None for a Ray that is {state}, got {value!r}. Give it where "
                "that Ray is started."
            )


def _join(ray: ModuleType, address: str, options: dict[str, Any]) -> None:
    """Connect to a cluster that runs, or say that it does not answer."""
    advice = "Is the cluster running (`ray status`), and is the port open to this machine?"
    try:
        if address != "auto":
            host, _, port = address.removeprefix("ray://").rpartition(":")
            # Ray itself would try for minutes.
            socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_ANSWER).close()
        with random_state_kept():
            _connect(ray, address, options)
    except (OSError, RuntimeError, ray.exceptions.RayError) as error:
        # The last line: a client is sent the traceback of the server.
        reason = str(error).strip().splitlines()[-1].rstrip(".")
        raise ConnectionError(
            f"No Ray cluster could be joined at {address!r}: {reason}. {advice}"
        ) from error


def _connect(ray: ModuleType, address: str, options: dict[str, Any]) -> None:
    """Connect, again while the head cannot start its server for this client."""
    for left in reversed(range(_CLIENT_ATTEMPTS)):
        try:
            ray.init(address, **options)
            return
        except ConnectionAbortedError as error:
            if not left or not any(text in str(error) for text in _SERVER_DIED):
                raise


def _shut_down(ray: ModuleType) -> None:
    """Leave a cluster, or end a local Ray."""
    with random_state_kept():
        ray.shutdown()


@contextmanager
def _local(ray: ModuleType, num_cpus: int | None, options: dict[str, Any]) -> Iterator[None]:
    """Run a Ray of this machine alone, with its files in a folder that goes with it."""
    base = tempfile.gettempdir()
    if len(base) > _LONGEST_BASE and os.name == "posix":
        base = "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="mlr-", dir=base))
    # With a token of its own no other user of the machine can use it, and Ray leaves none in the
    # home folder.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        _read_token_anew(ray)
        with random_state_kept():
            ray.init(
                "local",
                num_cpus=num_cpus,
                include_dashboard=False,
                _temp_dir=str(folder),
                **options,
            )
        yield
    finally:
        _shut_down(ray)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _process_state_kept(ray: ModuleType) -> Iterator[None]:
    """Put back what ``ray.init`` changes: environment and signal handler."""
    environment = _ray_environment()
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        for name in _ray_environment():
            del os.environ[name]
        os.environ.update(environment)
        if main:
            signal.signal(signal.SIGTERM, handler)
        _read_token_anew(ray)


@contextmanager
def _hushed(quiet: bool) -> Iterator[None]:
    """Keep the output stream free of what Ray's threads print, and all of Ray's if asked to."""
    logger = logging.getLogger("ray")
    level, handlers, propagate = logger.level, logger.handlers[:], logger.propagate
    if quiet:
        logger.setLevel(logging.CRITICAL)
    try:
        with redirect_stdout(_WithoutRay(sys.stdout, quiet)):
            yield
    finally:
        logger.setLevel(level)
        logger.handlers[:], logger.propagate = handlers, propagate


class _WithoutRay:
    """An output stream that what Ray's own threads print does not reach.

    Ray tells of lost nodes and processes there, whatever it was asked.

    Parameters
    ----------
    stream : text stream
        The output stream.
    quiet : bool
        Whether it is dropped; otherwise it goes to the error stream.
    """

    def __init__(self, stream: TextIO, quiet: bool) -> None:
        self._stream, self._quiet = stream, quiet

    def write(self, text: str) -> int:
        """Write a text, unless it is Ray's."""
        if not threading.current_thread().name.startswith("ray_"):
            return self._stream.write(text)
        return len(text) if self._quiet else sys.stderr.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _ray_environment() -> dict[str, str]:
    """Give the environment variables that Ray sets or reads."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("RAY_") or name == "PYTHONBREAKPOINT"
    }


def _read_token_anew(ray: ModuleType) -> None:
    """Let Ray read the token and the mode of its authentication from the environment again."""
    loader = getattr(ray._raylet, "AuthenticationTokenLoader", None)
    if loader is not None:  # an older Ray knows no tokens
        loader.instance().reset_cache()
        ray._raylet.Config.initialize("")
