"""One run in training, step by step: eagerly, compiled, or replayed as a CUDA graph."""

import contextlib
import math
from collections.abc import Hashable, Iterator
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from mlrforecast.nn import EncoderBlock
from mlrforecast.tasks._clock import Clock
from mlrforecast.tasks._seeds import draw_seed
from mlrforecast.tasks._trainee import Trainee
from mlrforecast.training import Checkpoint, Progress, annealed, build_optimizer

__all__ = ["Training"]

_WARM_UP = 3
"""Steps that are made eagerly before they are recorded: what is made once is made then."""


@contextlib.contextmanager
def _products(*, rounded: bool) -> Iterator[None]:
    """Have products of float32 matrices round what they multiply, or leave them as they are."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if rounded else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class _Loss(nn.Module):
    """The loss of a batch as a module, which is what several devices share."""

    def __init__(self, trainee: Trainee) -> None:
        super().__init__()
        self.model = trainee.model
        self._loss = trainee.loss

    def forward(self, *batch: Tensor) -> Tensor:
        """Return the loss."""
        return self._loss(*batch)


class Training:
    """A run that goes on step by step; what it draws in a step depends on the step alone.

    Parameters
    ----------
    trainee : Trainee
        What is trained; brought to the device of ``fabric``.
    fabric : Fabric
        Where it is trained.
    compile : bool
        Whether ``torch.compile`` makes the blocks of the model.
    stream : torch.cuda.Stream, optional
        Where steps are replayed as CUDA graphs, one for each stage. Default: they are not.
    clock : Clock, optional
        Tells how long training takes. Default: one of its own.

    Attributes
    ----------
    stream : torch.cuda.Stream or None
        The stream, unless the steps cannot be recorded.
    """

    def __init__(
        self,
        trainee: Trainee,
        fabric: Fabric,
        *,
        compile: bool = False,  # noqa: A002
        stream: torch.cuda.Stream | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.trainee = trainee
        self.run = trainee.run
        self.step = 0
        self.curve: list[dict[str, float]] = []
        self.diverged = False
        self._fabric = fabric
        self._device = fabric.device
        trainee.place(self._device)
        if compile:
            # Blocks are alike: one is compiled for all of them, and for all lengths there are.
            for block in trainee.model.modules():
                if isinstance(block, EncoderBlock):
                    block.compile(dynamic=trainee.grows)
        self._module: Any = fabric.setup_module(_Loss(trainee), move_to_device=False)
        self.stream = stream if trainee.capturable else None
        self._pool = None if self.stream is None else torch.cuda.graph_pool_handle()
        # None is dropped before the run ends: their memory, and that of the products, is shared.
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._is_recorded = False
        self._sent: torch.cuda.Event | None = None
        self._clock = Clock(self._device) if clock is None else clock
        self._began = self._clock.now()
        self._stage: Hashable = None
        self._steps_of_stage = 0
        self._generator = torch.Generator(trainee.draws_on)
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        self._loss_count = 0
        self._totals = {"tokens": 0, "paper_flops": 0, "training_flops": 0}
        self._optimizer = build_optimizer(
            trainee.model,
            learning_rate=self.run.learning_rate,
            weight_decay=self.run.weight_decay,
            parametrization=self.run.parametrization,
        )
        self._join_stream()
        self._rates = [float(group["lr"]) for group in self._optimizer.param_groups]
        self._factor = math.nan
        if self.stream is not None:
            for group in self._optimizer.param_groups:
                # Read by the graph, so that the rate may change between its replays.
                group["lr"] = torch.tensor(float(group["lr"]), device=self._device)
                group["capturable"] = True

    @property
    def seconds(self) -> float:
        """Seconds of training, those of an earlier process included."""
        return self._clock.now() - self._began

    @property
    def devices(self) -> int:
        """Devices that share the run."""
        return int(self._fabric.world_size)

    @property
    def ended(self) -> bool:
        """Whether no step is left."""
        return self.diverged or self.step >= self.run.max_steps

    @property
    def next_pause(self) -> int:
        """The step before which the run is evaluated next."""
        after = (self.step // self.run.interval + 1) * self.run.interval
        return min(after, self.run.max_steps)

    def advance(self, until: int) -> None:
        """Make the steps up to one; nothing waits for a GPU, see :meth:`wait_for_earlier`.

        Parameters
        ----------
        until : int
            The first step that is not made.
        """
        if not self.trainee.model.training:
            self.trainee.model.train()
        with self._on_stream():
            while self.step < until:
                self._advance_by_one()

    def wait_for_earlier(self) -> None:
        """Wait for the steps that were made before the last call of this, if a GPU makes them.

        Otherwise thousands of steps could be under way when the time is over.
        """
        if self._device.type != "cuda":
            return
        with self._on_stream():
            sent = torch.cuda.Event()
            sent.record()
        if self._sent is not None:
            self._sent.synchronize()
        self._sent = sent

    def _advance_by_one(self) -> None:
        run = self.run
        stage = self.trainee.stage(self.step)
        if stage != self._stage or self._steps_of_stage == 0:
            self._stage, self._steps_of_stage, self._is_recorded = stage, 0, False
        self._set_rates()
        self._generator.manual_seed(
            draw_seed(run.seed, self.step, "training", rank=self._fabric.global_rank)
        )
        if self.stream is None or self._steps_of_stage < _WARM_UP:
            self._make_step(stage)
        else:
            self._replay(stage)
        self.step += 1
        self._steps_of_stage += 1
        self._loss_count += 1
        cost = self.trainee.cost(stage)
        for name in self._totals:
            self._totals[name] += run.batch_size * getattr(cost, name)

    def _replay(self, stage: Hashable) -> None:
        """Make a step by its graph, recorded first if need be."""
        if not self._is_recorded:
            self._make_room()
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self._generator)
            # The context of torch empties the cache of all other runs first, which takes long.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                self._make_step(stage)
            except BaseException:
                # What is said of the unfinished graph would hide the reason.
                with contextlib.suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
            self._graphs.append(graph)
            self._is_recorded = True
        self._graphs[-1].replay()

    def _make_room(self) -> None:
        """Give back what eager steps keep, where a graph may not find as much beside it.

        While a graph is recorded nothing can be given back.
        """
        free, _ = torch.cuda.mem_get_info(self._device)
        if free < torch.cuda.memory_reserved(self._device):
            torch.cuda.empty_cache()

    def _make_step(self, stage: Hashable) -> None:
        """Make an optimiser step."""
        run = self.run
        self._optimizer.zero_grad(set_to_none=True)
        with _products(rounded=run.precision == "tf32" and self._device.type == "cuda"):
            self._add_gradients(stage)
        if run.gradient_clip is not None:
            nn.utils.clip_grad_norm_(
                self.trainee.model.parameters(), run.gradient_clip, foreach=True
            )
        self._optimizer.step()

    def _add_gradients(self, stage: Hashable) -> None:
        """Draw the batch of a step, and go through the model and back."""
        run = self.run
        for part in range(run.micro_batches):
            last = part == run.micro_batches - 1
            batch = self._drawn(stage)
            with self._fabric.no_backward_sync(self._module, enabled=not last):
                with torch.autocast(
                    self._device.type,
                    dtype=torch.bfloat16,
                    enabled=run.precision == "bf16-mixed",
                ):
                    loss = self._module(*batch)
                self._fabric.backward(loss / run.micro_batches)
            self._loss_sum.add_(loss.detach() / run.micro_batches)

    def _drawn(self, stage: Hashable) -> tuple[Tensor, ...]:
        """Draw the sequences of this process for one pass through the model."""
        run = self.run
        size = run.batch_size // (run.micro_batches * self._fabric.world_size)
        batch = self.trainee.draw(stage, size, self._generator)
        return tuple(part.to(self._device, non_blocking=True) for part in batch)

    def _set_rates(self) -> None:
        """Set the learning rates of the coming step."""
        run = self.run
        factor = annealed(
            self.step,
            warmup_steps=run.warmup_steps,
            max_steps=run.max_steps,
            schedule=run.schedule,
        )
        if factor == self._factor:
            return
        self._factor = factor
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            if self.stream is not None:
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor

    def evaluate(self) -> dict[str, float]:
        """Add a row to the curve: scores on fresh data, and the mean loss since the last one."""
        with self._clock.paused(), self._on_stream():
            mean: Any = self._fabric.all_reduce(self._loss_sum, reduce_op="mean")
            train_loss = float(mean) / max(self._loss_count, 1)
            self._loss_sum.zero_()
            self._loss_count = 0
            self.trainee.model.eval()
            with torch.no_grad(), torch.compiler.set_stance("force_eager"):
                scores = self.trainee.evaluate()
        self.diverged = not all(map(math.isfinite, (train_loss, scores["score"])))
        totals = {name: float(value) for name, value in self._totals.items()}
        row = {"step": float(self.step), **totals, "train_loss": train_loss, **scores}
        self.curve.append(row | {"seconds": self.seconds})
        return row

    def progress(self) -> Progress:
        """Return all that another process needs to go on."""
        with self._clock.paused(), self._on_stream():
            tensors = {
                f"model.{name}": value for name, value in self.trainee.model.state_dict().items()
            }
            for number, moments in self._optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer.{number}.{key}": value for key, value in moments.items()}
            tensors["loss_sum"] = self._loss_sum
            tensors = {name: value.detach().cpu() for name, value in tensors.items()}
        return Progress(
            tensors,
            {
                "finished": False,
                "step": self.step,
                "loss_count": self._loss_count,
                "totals": self._totals,
                "seconds": self.seconds,
                "curve": self.curve,
            },
        )

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, which is no training.

        Parameters
        ----------
        checkpoint : Checkpoint
            The file.
        """
        progress = self.progress()
        with self._clock.paused():
            checkpoint.write(progress)

    def resume(self, progress: Progress) -> None:
        """Go on where another process was.

        Parameters
        ----------
        progress : Progress
            What :meth:`progress` returned there.
        """
        numbers = progress.numbers
        self.trainee.model.load_state_dict(progress.part("model"))
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in progress.part("optimizer").items():
            number, key = name.split(".", 1)
            state.setdefault(int(number), {})[key] = value
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})
        self._loss_sum.copy_(progress.tensors["loss_sum"])
        self.step, self._loss_count = int(numbers["step"]), int(numbers["loss_count"])
        self._totals = {name: int(value) for name, value in numbers["totals"].items()}
        self._began -= float(numbers["seconds"])
        self.curve = list(numbers["curve"])
        self._join_stream()

    def _on_stream(self) -> contextlib.AbstractContextManager[Any]:
        """Work on the run's own stream, if it has one."""
        if self.stream is None:
            return contextlib.nullcontext()
        return torch.cuda.stream(self.stream)

    def _join_stream(self) -> None:
        """Have the run's own stream wait for what was done outside of it."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self._device))
