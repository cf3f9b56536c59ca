"""One model trained by several workers of a Ray cluster, through Ray Train and Lightning."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from mlrforecast._core.optional import import_optional
from mlrforecast.integrations.ray._packing import pack, unpack
from mlrforecast.training import Checkpoint, ForecastModule, Progress, isolated_seed
from mlrforecast.training.run import train_share
from mlrforecast.training.team import Job, Place

PURPOSE = "Training on a Ray cluster"
_SECONDS = 0.5
"""Between two looks at how far a run is."""


def train_on(
    ray: ModuleType, job: Job, needed: dict[str, float], *, max_failures: int
) -> tuple[int, dict[str, Tensor]]:
    """Start workers, show how far they are, and return what the first one returns."""
    on_ray = import_optional("ray.train", extra="tune", purpose=PURPOSE)
    with_torch = import_optional("ray.train.torch", extra="tune", purpose=PURPOSE)
    options = job.options
    accelerator = "gpu" if "GPU" in needed else "cpu"
    log_dir = None if options.log_dir is None else options.log_dir.absolute()
    with _bar(ray, options.max_steps, shown=options.progress) as teller:
        trainer = with_torch.TorchTrainer(
            _work,
            train_loop_config={
                "model": job.model,
                "windows": ray.put(pack((job.store, job.validation))),
                "options": replace(
                    options, accelerator=accelerator, log_dir=log_dir, progress=False
                ),
                "checkpoint": _absolute(job.checkpoint),
                "random": torch.get_rng_state(),
                "teller": teller,
            },
            scaling_config=on_ray.ScalingConfig(
                num_workers=options.devices,
                use_gpu=accelerator == "gpu",
                resources_per_worker=needed,
            ),
            run_config=on_ray.RunConfig(
                **_storage(),
                failure_config=on_ray.FailureConfig(
                    max_failures=0 if job.checkpoint is None else max_failures
                ),
            ),
        )
        found = _result_of(trainer)
    if isinstance(found, FloatingPointError):
        raise found
    num_steps, weights = unpack(found)
    return num_steps, weights


def _absolute(checkpoint: Checkpoint | None) -> Checkpoint | None:
    """Return a checkpoint whose folder any working directory finds."""
    if checkpoint is None:
        return None
    return Checkpoint(checkpoint.path.parent.absolute(), checkpoint.run)


def _storage() -> dict[str, Any]:
    """Return where Ray Train writes its notes: into memory, for nobody reads them."""
    fsspec = import_optional("fsspec", extra="tune", purpose=PURPOSE)
    arrow = import_optional("pyarrow.fs", extra="tune", purpose=PURPOSE)
    memory = arrow.PyFileSystem(arrow.FSSpecHandler(fsspec.filesystem("memory")))
    return {"storage_path": "/mlrforecast", "storage_filesystem": memory}


@contextmanager
def _bar(ray: ModuleType, max_steps: int, *, shown: bool) -> Iterator[Any]:
    """Show how far a run is, as told by its first worker through what is yielded."""
    if not shown:
        yield None
        return
    # Beside this process: on another node it would end with that.
    here = import_optional("ray.util.scheduling_strategies", extra="tune", purpose=PURPOSE)
    place = here.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    teller = ray.remote(num_cpus=0, scheduling_strategy=place)(_Steps).remote()
    ended = threading.Event()
    with tqdm(total=max_steps, desc="Fitting", file=sys.stderr) as bar:

        def show() -> None:
            if (made := ray.get(teller.read.remote())) > bar.n:
                bar.update(made - bar.n)

        def look() -> None:
            while not ended.wait(_SECONDS):
                show()

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield teller
        finally:
            ended.set()
            watcher.join()
            show()
            ray.kill(teller)


class _Steps:
    """An actor that knows how far a run is."""

    def __init__(self) -> None:
        self._made = 0

    def note(self, made: int) -> None:
        self._made = made

    def read(self) -> int:
        return self._made


class _Telling(Callback):
    """Tell an actor how far a run is, now and then."""

    def __init__(self, teller: Any) -> None:
        self._teller = teller
        self._due = 0.0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        assert isinstance(pl_module, ForecastModule)
        if time.monotonic() >= self._due or pl_module.steps == pl_module.options.max_steps:
            self._due = time.monotonic() + _SECONDS
            self._teller.note.remote(pl_module.steps)


def _work(settings: dict[str, Any]) -> Any:
    """Train in one of the workers; the first one returns what was learnt, packed."""
    # The workers of a cluster have it.
    ray = import_optional("ray", extra="tune", purpose=PURPOSE)
    on_ray = import_optional("ray.train.lightning", extra="tune", purpose=PURPOSE)
    rank = ray.train.get_context().get_world_rank()
    store, validation = unpack(ray.get(settings["windows"]))
    options, checkpoint = settings["options"], settings["checkpoint"]
    job = Job(settings["model"], store, options, validation, checkpoint)
    teller = settings["teller"] if rank == 0 else None
    place = Place(
        on_ray.RayDDPStrategy,
        [on_ray.RayLightningEnvironment()],
        [] if teller is None else [_Telling(teller)],
        _agreed(checkpoint, rank, _device(ray)),
    )
    with isolated_seed(options.seed):
        torch.set_rng_state(settings["random"])
        try:
            learnt = train_share(job, place)
        except FloatingPointError as error:
            # All workers come to it, and would come to it again.
            return error
    return pack(learnt) if rank == 0 else None


def _device(ray: ModuleType) -> torch.device:
    """Return the device of this worker."""
    import_optional("ray.train.torch", extra="tune", purpose=PURPOSE)
    device: torch.device = ray.train.torch.get_device()
    return device


def _agreed(checkpoint: Checkpoint | None, rank: int, device: torch.device) -> Progress | None:
    """Return how far a run was, as the first worker reads it."""
    if checkpoint is None:
        return None
    found: list[Progress | None] = [None]
    if rank == 0:
        folder = checkpoint.path.parent
        if not folder.is_dir():
            raise FileNotFoundError(
                f"`checkpoint_dir` {str(folder)!r} is not there on a node of the cluster: name a "
                "folder on a file system that all nodes share."
            )
        found = [checkpoint.read()]
    torch.distributed.broadcast_object_list(found, device=device)
    return found[0]


def _result_of(trainer: Any) -> Any:
    """Return what the first worker returned, or raise what was raised in one."""
    errors = import_optional("ray.train", extra="tune", purpose=PURPOSE)
    handler = signal.getsignal(signal.SIGINT)
    try:
        return trainer.fit().return_value
    except SystemExit:
        # What Ray makes of Ctrl-C.
        raise KeyboardInterrupt from None
    except errors.TrainingFailedError as error:
        raise _own_error(error) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _own_error(error: Any) -> Exception:
    """Return the error that a worker raised, or one that says why a worker was lost."""
    found: list[Exception] = list(getattr(error, "worker_failures", {}).values())
    lost = [each for each in found if type(each).__module__.startswith("ray.")]
    # A worker that loses another one raises a RuntimeError.
    own = [each for each in found if each not in lost and not isinstance(each, RuntimeError)]
    if own or (found and not lost):
        return (own or found)[0]
    reason = " ".join(str(lost[0] if lost else error).split())
    return RuntimeError(
        "Training ended because a worker of the Ray cluster was lost. With `checkpoint_dir` on a "
        "file system that all nodes share, a fit goes on from its last checkpoint, in the same "
        f"call while `max_failures` allows it, and when it is started again. {reason}"
    )
