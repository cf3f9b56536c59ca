"""Language models of characters or bytes: text made into a corpus, and batches of it."""

from mlrforecast.tasks.language_model.batches import (
    Windows,
    document_levels,
    draw_windows,
    validation_batches,
    windows,
)
from mlrforecast.tasks.language_model.corpus import PATTERNS, Corpus, Split, prepare_corpus
from mlrforecast.tasks.language_model.hub import hugging_face_documents
from mlrforecast.tasks.language_model.vocabulary import VOCABULARIES, Vocabulary, get_vocabulary

__all__ = [
    "PATTERNS",
    "VOCABULARIES",
    "Corpus",
    "Split",
    "Vocabulary",
    "Windows",
    "document_levels",
    "draw_windows",
    "get_vocabulary",
    "hugging_face_documents",
    "prepare_corpus",
    "validation_batches",
    "windows",
]
