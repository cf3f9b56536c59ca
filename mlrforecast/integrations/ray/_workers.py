"""Which Ray cluster, and what each worker takes of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import Tensor

from mlrforecast._core.cluster import connected
from mlrforecast._core.optional import import_optional
from mlrforecast.integrations.ray._train import PURPOSE, train_on
from mlrforecast.training.team import Job, Team

_NAMES = {"cpu": "CPU", "gpu": "GPU"}


@dataclass(frozen=True, kw_only=True)
class RayWorkers(Team):
    """Workers of a Ray cluster, for ``fit(..., distributed=)`` and :func:`predict_parquet`.

    A fit has as many as the forecaster has ``devices``, each of which trains on its share of the
    windows of every step. A forecast has as many as find room on the cluster.

    Parameters
    ----------
    address : str, optional
        Cluster to connect to: ``"auto"``, ``"host:port"`` or ``"ray://host:port"``. Default: the
        one that the process is connected to by ``ray.init``, otherwise a Ray on this machine that
        ends with the call.
    resources : mapping of str to float, optional
        What a worker takes of its node, such as ``{"cpu": 4, "gpu": 1}``, or any resource that
        the cluster has a name for. Default: a CPU, and a GPU where the forecaster's
        ``accelerator`` asks for one; ``"auto"`` does for a fit on a cluster that has enough.
    max_failures : int
        How often the workers of a fit start again after one was lost, from the last checkpoint;
        without ``checkpoint_dir`` the fit ends then.
    runtime_env : mapping, optional
        What workers need, such as ``{"pip": [...]}``; see Ray's runtime environments.
    autoscaling : bool
        Whether the cluster grows by itself, so that a fit waits for resources that it lacks.

    Examples
    --------
    >>> RayWorkers(address="10.0.0.5:6379", resources={"cpu": 4, "gpu": 1}).max_failures
    2
    """

    address: str | None = None
    resources: Mapping[str, float] | None = None
    max_failures: int = 2
    runtime_env: Mapping[str, Any] | None = None
    autoscaling: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.max_failures, bool) or not isinstance(self.max_failures, int):
            raise TypeError(f"`max_failures` must be a whole number, got {self.max_failures!r}.")
        if self.max_failures < 0:
            raise ValueError(f"`max_failures` must be 0 or more, got {self.max_failures}.")
        _ray_names(self.resources)

    @contextmanager
    def connected(self, purpose: str, *, workers: int | None = None) -> Iterator[ModuleType]:
        """Connect to the cluster for the length of a block.

        Parameters
        ----------
        purpose : str
            What needs Ray, as the beginning of a sentence.
        workers : int, optional
            Workers that a Ray on this machine holds. Default: as many as it has CPUs for.

        Yields
        ------
        module
            The module ``ray``, connected.

        Raises
        ------
        ConnectionError
            If there is no cluster at ``address``.
        """
        ray = import_optional("ray", extra="tune", purpose=purpose)
        num_cpus = None
        if self.address is None and workers is not None and not ray.is_initialized():
            num_cpus = max(1, -int(-workers * self.needed("auto").get("CPU", 0.0) // 1))
        with connected(
            self.address, num_cpus=num_cpus, runtime_env=self.runtime_env, purpose=purpose
        ) as ray:
            yield ray

    def needed(
        self, accelerator: str, *, num_gpus: float = 0.0, workers: int = 1
    ) -> dict[str, float]:
        """Return what a worker takes, by the names that Ray has for it.

        Parameters
        ----------
        accelerator : {"auto", "cpu", "gpu"}
            Where it computes.
        num_gpus : float
            GPUs that there are; ``"auto"`` takes them if all ``workers`` can have one.
        workers : int
            How many workers there are.

        Raises
        ------
        ValueError
            For another accelerator.
        """
        if accelerator not in ("auto", "cpu", "gpu"):
            raise ValueError(
                "`accelerator` must be 'auto', 'cpu' or 'gpu' on a Ray cluster, got "
                f"{accelerator!r}."
            )
        needed = {"CPU": 1.0} | _ray_names(self.resources)
        if accelerator == "gpu" or (accelerator == "auto" and num_gpus >= workers):
            needed.setdefault("GPU", 1.0)
        return {name: count for name, count in needed.items() if count > 0}

    def train(self, job: Job) -> tuple[int, dict[str, Tensor]]:
        """Train on the workers; what the first one has learnt comes back.

        Parameters
        ----------
        job : Job
            The run; ``devices`` of its options says how many workers there are.

        Returns
        -------
        int
            Optimiser steps that were made.
        dict of str to Tensor
            The trained weights.

        Raises
        ------
        FloatingPointError
            If training diverged.
        ConnectionError
            If there is no cluster at ``address``.
        ValueError
            If the cluster has not the resources.
        RuntimeError
            If workers were lost more often than ``max_failures``.
        """
        workers = job.options.devices
        with self.connected(PURPOSE, workers=workers) as ray:
            num_gpus = ray.cluster_resources().get("GPU", 0.0)
            needed = self.needed(job.options.accelerator, num_gpus=num_gpus, workers=workers)
            if not self.autoscaling:
                check_room(ray, needed, workers)
            return train_on(ray, job, needed, max_failures=self.max_failures)


def check_room(ray: ModuleType, needed: Mapping[str, float], workers: int) -> int:
    """Return how many workers a cluster can hold; refuse to wait for ever for what it lacks."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    places = sum(
        min(int(node.get(name, 0.0) / count + 1e-9) for name, count in needed.items())
        for node in nodes
    )
    if places < workers:
        have = {name: sum(node.get(name, 0.0) for node in nodes) for name in needed}
        raise ValueError(
            f"The Ray cluster has room for {places} of {workers} workers: each needs "
            f"{_listed(needed)}, and {len(nodes)} nodes together have {_listed(have)}. Use fewer "
            "workers, ask for less in `resources`, or add nodes."
        )
    return places


def _ray_names(resources: Mapping[str, float] | None) -> dict[str, float]:
    """Return resources by the names that Ray has for them, or say what is wrong with them."""
    if resources is None:
        return {}
    if not isinstance(resources, Mapping):
        raise TypeError(
            f"`resources` must be a mapping such as {{'cpu': 1, 'gpu': 0.5}}, got {resources!r}."
        )
    given: Mapping[Any, Any] = resources
    for name, count in given.items():
        if (
            not isinstance(name, str)
            or isinstance(count, bool)
            or not isinstance(count, int | float)
        ):
            raise TypeError(
                f"`resources` must give a number for each name, got {count!r} for {name!r}."
            )
        if not 0 <= count < float("inf"):
            raise ValueError(f"`resources` must be 0 or more, got {count} for {name!r}.")
    return {_NAMES.get(name, name): float(count) for name, count in resources.items()}


def _listed(resources: Mapping[str, float]) -> str:
    """Return resources in words."""
    return ", ".join(f"{count:g} {name}" for name, count in resources.items())
