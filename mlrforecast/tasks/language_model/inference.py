"""What a trained language model says: its loss on a corpus, and text that goes on."""

import dataclasses
import math
import time

import torch

from mlrforecast.models import CausalLM
from mlrforecast.tasks.language_model._scoring import mean_loss
from mlrforecast.tasks.language_model.corpus import Split
from mlrforecast.tasks.language_model.vocabulary import Vocabulary

__all__ = ["Continuation", "continue_text", "evaluate_language_model"]

_BATCH_TOKENS = 16384


def evaluate_language_model(
    model: CausalLM,
    split: Split,
    *,
    length: int | None = None,
    max_tokens: int | None = None,
    documents: bool = False,
) -> dict[str, float]:
    """Score a model on one side of a corpus.

    Parameters
    ----------
    model : CausalLM
        The model, on any device; it is put in evaluation mode.
    split : Split
        The side of the corpus, of the model's vocabulary.
    length : int, optional
        Tokens of the windows in which it is read. Default: the model's ``context_length``.
    max_tokens : int, optional
        Predict at most so many, in windows that lie evenly. Default: all.
    documents : bool, default False
        Whether tokens attend within their own document only, which is the coarsest level of MLR
        attention then, as in a run of that setting.

    Returns
    -------
    dict of str to float
        ``nats`` and ``bits`` a token, ``perplexity``, and the number of ``tokens``.

    Raises
    ------
    ValueError
        If the vocabularies differ, a length is out of its range, or attention of another kind than
        MLR is to keep documents apart.

    Examples
    --------
    >>> import tempfile
    >>> from mlrforecast.models import CausalLMConfig
    >>> from mlrforecast.tasks.language_model import prepare_corpus
    >>> model = CausalLM(CausalLMConfig(vocabulary_size=96, context_length=8, width=8, num_heads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = (f"Text {number}." for number in range(20))
    ...     corpus = prepare_corpus(texts, folder, validation_share=0.5, progress=False)
    ...     scores = evaluate_language_model(model, corpus.validation)
    >>> list(scores)
    ['nats', 'bits', 'perplexity', 'tokens']
    """
    if split.vocabulary.size != model.config.vocabulary_size:
        raise ValueError(
            f"`split` must have the model's {model.config.vocabulary_size} tokens, and its "
            f"vocabulary {split.vocabulary.name!r} has {split.vocabulary.size}."
        )
    length = model.config.context_length if length is None else length
    model.eval()
    nats, count = mean_loss(
        model,
        split.tensor(),
        length,
        max(1, _BATCH_TOKENS // length),
        max_tokens=max_tokens,
        documents=split.document_tensor() if documents else None,
    )
    return {
        "nats": nats,
        "bits": nats / math.log(2),
        "perplexity": math.exp(nats),
        "tokens": float(count),
    }


@dataclasses.dataclass(frozen=True)
class Continuation:
    """Text that a model wrote, and what it kept in memory meanwhile.

    Attributes
    ----------
    prompt, text : str
        What was given, and what follows it.
    cache_bytes : int
        Bytes of keys and values that the model keeps of all of it.
    full_cache_bytes : int
        The same for attention that keeps every column of every token.
    seconds : float
        Time that it took to write.
    """

    prompt: str
    text: str
    cache_bytes: int
    full_cache_bytes: int
    seconds: float


def continue_text(
    model: CausalLM,
    vocabulary: Vocabulary,
    prompt: str,
    max_new_tokens: int,
    *,
    temperature: float = 0.8,
    top_k: int | None = None,
    seed: int | None = None,
) -> Continuation:
    """Let a model go on with a text.

    Parameters
    ----------
    model : CausalLM
        The model, on any device.
    vocabulary : Vocabulary
        What its tokens stand for.
    prompt : str
        The beginning, of at least one character of the vocabulary.
    max_new_tokens : int
        Tokens to add, at least 1. With learned positions, prompt and text together end at the
        model's ``context_length``.
    temperature : float
        Logits are divided by it; 0 takes the likeliest token.
    top_k : int, optional
        Draw among the ``top_k`` likeliest tokens only.
    seed : int, optional
        Gives the same text again. Default: another one each time.

    Returns
    -------
    Continuation

    Raises
    ------
    ValueError
        If an argument is out of its range, or the prompt has no character of the vocabulary.

    Examples
    --------
    >>> from mlrforecast.models import CausalLMConfig
    >>> from mlrforecast.tasks.language_model import get_vocabulary
    >>> config = CausalLMConfig(vocabulary_size=96, context_length=64, width=8, num_heads=1)
    >>> model = CausalLM(config)
    >>> written = continue_text(model, get_vocabulary("characters"), "Once", 28, seed=0)
    >>> len(written.text), written.cache_bytes < written.full_cache_bytes
    (28, True)
    """
    encoded = vocabulary.encode(prompt)
    if len(encoded) == 0:
        raise ValueError(
            f"`prompt` must have a character of the vocabulary {vocabulary.name!r}, got {prompt!r}."
        )
    device = next(model.parameters()).device
    tokens = torch.from_numpy(encoded.astype("int64"))[None].to(device)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    begin = time.perf_counter()
    written = model.generate(
        tokens, max_new_tokens, temperature=temperature, top_k=top_k, generator=generator
    )
    seconds = time.perf_counter() - begin
    # The last token was not read.
    read = written[:, :-1] if written.shape[1] > 1 else written
    cache = model.new_cache()
    with torch.no_grad():
        model(read, cache=cache)
    config = model.config
    element = next(model.parameters()).element_size()
    full = 2 * config.num_layers * config.width * read.shape[1] * element
    new = written[0, tokens.shape[1] :].cpu()
    return Continuation(prompt, vocabulary.decode(new), cache.num_bytes, full, seconds)
