"""Language models of characters or bytes: corpora, training, scores and text that goes on."""

from mlrforecast.tasks.language_model.batches import (
    Windows,
    document_levels,
    draw_windows,
    validation_batches,
    windows,
)
from mlrforecast.tasks.language_model.corpus import PATTERNS, Corpus, Split, prepare_corpus
from mlrforecast.tasks.language_model.hub import hugging_face_documents
from mlrforecast.tasks.language_model.inference import (
    Continuation,
    continue_text,
    evaluate_language_model,
)
from mlrforecast.tasks.language_model.recipe import LanguageRun, load_language_model, train
from mlrforecast.tasks.language_model.vocabulary import VOCABULARIES, Vocabulary, get_vocabulary

__all__ = [
    "PATTERNS",
    "VOCABULARIES",
    "Continuation",
    "Corpus",
    "LanguageRun",
    "Split",
    "Vocabulary",
    "Windows",
    "continue_text",
    "document_levels",
    "draw_windows",
    "evaluate_language_model",
    "get_vocabulary",
    "hugging_face_documents",
    "load_language_model",
    "prepare_corpus",
    "train",
    "validation_batches",
    "windows",
]
