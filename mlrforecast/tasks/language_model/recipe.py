"""Language models of characters or bytes: settings, training, generation, and models read back."""

import dataclasses
import math
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from mlrforecast._core.arguments import check_switch
from mlrforecast._core.provenance import config_hash
from mlrforecast.models import CausalLM, CausalLMConfig, count_flops
from mlrforecast.tasks._engine import Execution, train_runs
from mlrforecast.tasks._records import TaskResult, load_model_file
from mlrforecast.tasks._settings import TaskRun
from mlrforecast.tasks._trainee import SequenceCost, Trainee
from mlrforecast.tasks.language_model._scoring import document_blocks, mean_loss
from mlrforecast.tasks.language_model.batches import draw_windows
from mlrforecast.tasks.language_model.corpus import Corpus
from mlrforecast.tasks.language_model.vocabulary import get_vocabulary

__all__ = ["LanguageRun", "load_language_model", "train"]

_SHARE_OF_MEMORY = 0.2
"""Of a GPU's free memory that the corpus may take, to be drawn from there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageRun(TaskRun):
    """One language model and how it is trained.

    The defaults are the sizes and switches of the paper's smallest model.

    Parameters
    ----------
    corpus : str
        Hash of the corpus that it is trained on, filled in by :func:`train`.
    vocabulary : str
        Vocabulary of the corpus, filled in as well.
    context_length : int
        Tokens ``T`` of a sequence.
    documents : bool
        Whether tokens attend within their own document only, which then is the coarsest level of
        MLR attention.
    evaluation_tokens : int
        Tokens of the validation documents that an evaluation predicts, the same for all runs.
    name, width, num_heads, num_layers, attention, ranks, block_sizes, attention_options
        As in :class:`mlrforecast.tasks.TaskRun`.
    positions, qk_norm, max_steps, batch_size, learning_rate, weight_decay
        As in :class:`mlrforecast.tasks.TaskRun`.
    parametrization, zero_branches, warmup_steps, schedule, gradient_clip, micro_batches
        As in :class:`mlrforecast.tasks.TaskRun`.
    precision, evaluate_every, seed
        As in :class:`mlrforecast.tasks.TaskRun`.

    Raises
    ------
    ValueError
        If a field is out of its range.
    TypeError
        If a field is of the wrong kind.

    Examples
    --------
    >>> run = LanguageRun(attention="standard", num_heads=4, max_steps=3000)
    >>> run.tokens_per_step
    32768
    """

    corpus: str = ""
    vocabulary: str = "characters"
    context_length: int = 1024
    num_heads: int = 4
    batch_size: int = 32
    gradient_clip: float | None = 1.0
    documents: bool = False
    evaluation_tokens: int = 2**20

    task: ClassVar[str] = "language_model"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_count("context_length", 1)
        self.check_count("evaluation_tokens", self.context_length)
        check_switch("documents", self.documents)
        if self.documents and self.attention != "mlr":
            raise ValueError(
                f"`documents` needs attention='mlr', whose coarsest level they are, got "
                f"{self.attention!r}."
            )
        self.model_config  # noqa: B018  # its fields are checked as it is made

    @property
    def tokens_per_step(self) -> int:
        """Tokens of an optimiser step."""
        return self.batch_size * self.context_length

    @property
    def model_config(self) -> CausalLMConfig:
        """What determines the model."""
        return CausalLMConfig(
            vocabulary_size=get_vocabulary(self.vocabulary).size,
            context_length=self.context_length,
            **self.model_options(),
        )

    def load_model(self, folder: Path) -> CausalLM:
        """Return the trained model in a folder."""
        return load_language_model(folder)[0]


class LanguageTrainee(Trainee):
    """A language model in training on a corpus."""

    run: LanguageRun
    model: CausalLM

    def __init__(self, run: LanguageRun, corpus: Corpus) -> None:
        model = CausalLM(run.model_config)
        super().__init__(run, model)
        self._corpus = corpus
        self._train = corpus.train.tensor()
        self._validation = corpus.validation.tensor()
        self._train_documents: Tensor | None = None
        self._validation_documents: Tensor | None = None
        paper = count_flops(model, run.context_length, convention="paper")
        matmul = count_flops(model, run.context_length, convention="matmul")
        # The head is left out, as on the paper's axis.
        self._cost = SequenceCost(run.context_length, paper.total - paper.head, matmul.training())

    def place(self, device: torch.device) -> None:
        """Bring the model to a device, and the corpus too where it takes little of its memory."""
        super().place(device)
        if device.type == "cuda":
            free = torch.cuda.mem_get_info(device)[0]
            if self._corpus.train.num_tokens < _SHARE_OF_MEMORY * free:
                self._train = self._train.to(device)
            self._validation = self._validation.to(device)
        if self.run.documents:
            train, validation = self._corpus.train, self._corpus.validation
            self._train_documents = train.document_tensor(self._train.device)
            self._validation_documents = validation.document_tensor(self._validation.device)

    @property
    def draws_on(self) -> torch.device:
        """Where the training documents are."""
        return self._train.device

    @property
    def capturable(self) -> bool:
        """Whether the training documents are where the model is, and no blocks depend on them."""
        on_device = self._train.device == next(self.model.parameters()).device
        return on_device and not self.run.documents

    def cost(self, stage: Hashable) -> SequenceCost:
        """Return what a sequence costs."""
        del stage
        return self._cost

    def draw(
        self, stage: Hashable, batch_size: int, generator: torch.Generator
    ) -> tuple[Tensor, ...]:
        """Draw windows of the training documents."""
        del stage
        length = self.run.context_length
        drawn = draw_windows(self._train, batch_size, length, generator)
        if self._train_documents is None:
            return drawn.tokens, drawn.targets
        blocks = document_blocks(self.model, drawn.starts, self._train_documents, length)
        return drawn.tokens, drawn.targets, blocks

    def loss(self, *batch: Tensor) -> Tensor:
        """Return the mean cross-entropy, in nats a token."""
        tokens, targets, *blocks = batch
        return self.model.loss(tokens, targets, block_ids=blocks[0] if blocks else None)

    def evaluate(self) -> dict[str, float]:
        """Return the mean cross-entropy of the validation documents, in nats and bits a token."""
        run = self.run
        nats, _ = mean_loss(
            self.model,
            self._validation,
            run.context_length,
            max(1, run.batch_size // run.micro_batches),
            max_tokens=run.evaluation_tokens,
            documents=self._validation_documents,
            half=run.precision == "bf16-mixed",
        )
        return {"score": nats, "bits": nats / math.log(2)}


def train(
    runs: LanguageRun | Sequence[LanguageRun],
    corpus: str | Path | Corpus,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    execution: Execution | None = None,
    command: str = "",
) -> list[TaskResult]:
    """Train language models on a corpus.

    Parameters
    ----------
    runs : LanguageRun or sequence of LanguageRun
        What to train.
    corpus : str, Path or Corpus
        What :func:`prepare_corpus` made, or its folder.
    out : str or Path, optional
        Folder of the results: ``runs.csv``, ``curves.csv`` and the trained models. Default:
        nothing is written.
    resume : bool
        Whether runs whose results are in ``out`` are skipped, and unfinished ones go on.
    execution : Execution, optional
        How to compute.
    command : str
        What the results say that they were made by.

    Returns
    -------
    list of TaskResult
        One for each run that has ended.

    Raises
    ------
    ValueError
        If ``out`` holds results of a run and ``resume`` is False, one run is there twice, the
        corpus is shorter than a sequence, or a run names another corpus or vocabulary.

    Examples
    --------
    >>> import tempfile
    >>> from mlrforecast.tasks import Execution
    >>> from mlrforecast.tasks.language_model import prepare_corpus
    >>> texts = (f"The number after {n} is {n + 1}." for n in range(200))
    >>> sizes = {"width": 16, "num_heads": 2, "num_layers": 1, "context_length": 16}
    >>> run = LanguageRun(**sizes, max_steps=2, batch_size=2, evaluation_tokens=64)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     corpus = prepare_corpus(texts, folder, progress=False)
    ...     quiet = Execution(accelerator="cpu", progress=False)
    ...     [result] = train(run, corpus, execution=quiet)
    >>> result.run.vocabulary, result.scores["bits"] > 0
    ('characters', True)
    """
    opened = corpus if isinstance(corpus, Corpus) else Corpus.open(corpus)
    listed = [runs] if isinstance(runs, LanguageRun) else list(runs)
    known: dict[str, Any] = {
        "corpus": _hash_of(opened),
        "vocabulary": opened.vocabulary.name,
    }
    for run in listed:
        for name, found in known.items():
            told = getattr(run, name)
            if told not in (found, getattr(LanguageRun, name)):
                raise ValueError(
                    f"`{name}` of {run.name!r} must be that of the corpus, {found!r}, or be left "
                    f"out, got {told!r}."
                )
    listed = [dataclasses.replace(run, **known) for run in listed]
    for run in listed:
        for split in (opened.train, opened.validation):
            if split.num_tokens <= run.context_length:
                raise ValueError(
                    f"`context_length` must be below the {split.num_tokens} tokens of the "
                    f"{split.name} documents, got {run.context_length}."
                )
    return train_runs(
        listed,
        _Builder(opened.folder),
        out=out,
        resume=resume,
        execution=execution,
        command=command,
    )


def _hash_of(corpus: Corpus) -> str:
    """Return what tells a corpus from others: its files are recorded with their hashes."""
    return config_hash({name: corpus.record[name] for name in ("splits", "vocabulary")})


@dataclasses.dataclass(frozen=True)
class _Builder:
    """Opens the corpus in the process that trains."""

    folder: Path

    def __call__(self, run: TaskRun) -> LanguageTrainee:
        assert isinstance(run, LanguageRun)
        return LanguageTrainee(run, Corpus.open(self.folder))


def load_language_model(folder: str | Path) -> tuple[CausalLM, LanguageRun]:
    """Read a trained model.

    Parameters
    ----------
    folder : str or Path
        One of the folders in ``models`` of the results.

    Returns
    -------
    model : CausalLM
        On the CPU, in evaluation mode.
    run : LanguageRun
        How it was trained.

    Raises
    ------
    ModelFileError
        If a file is missing, was altered, or is of another task.

    Examples
    --------
    >>> load_language_model("no-such-folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    mlrforecast._core.errors.ModelFileError: 'no-such-folder' holds no model of a task ...
    """
    return load_model_file(folder, LanguageRun, lambda run: CausalLM(run.model_config))
