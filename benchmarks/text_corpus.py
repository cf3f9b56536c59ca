r"""Make the corpus of a language model of folders of text, and say what became of the text.

    python benchmarks/text_corpus.py SOURCE... --out FOLDER

Each SOURCE is a file, whatever its name, or a folder, of which the files are read whose names
match a pattern, at any depth, compressed or not. The corpus of the benchmarks is made of packages
of Debian 12 and of the text among the shared data:

    apt-get install dict-gcide perl-doc
    python benchmarks/text_corpus.py /usr/share/dictd/gcide.dict.dz /usr/share/perl/5.36.0/pod \
        "$MLRFORECAST_DATA/data/text" --pattern "*.txt" --pattern "*.pod" --out FOLDER
"""

import argparse
import time
from pathlib import Path

from mlrforecast.tasks.language_model import PATTERNS, VOCABULARIES, Corpus, prepare_corpus


def summary(corpus: Corpus) -> list[tuple[str, str]]:
    """Return the rows of the table: what was read, and what came of it.

    Parameters
    ----------
    corpus : Corpus
        What was made.
    """
    counts, splits = corpus.record["counts"], (corpus.train, corpus.validation)
    tokens = sum(split.num_tokens for split in splits)
    rows = [(name.replace("_", " "), f"{count:,}") for name, count in counts.items()]
    # The last of them is a share.
    rows[-1] = ("dropped share", f"{counts['dropped_share']:.4%}")
    for split in splits:
        rows += [
            (f"{split.name} documents", f"{split.num_documents:,}"),
            (f"{split.name} tokens", f"{split.num_tokens:,}"),
        ]
    return [
        ("sources", ", ".join(corpus.record["sources"])),
        ("vocabulary", f"{corpus.vocabulary.name} ({corpus.vocabulary.size})"),
        *rows,
        ("validation share of tokens", f"{corpus.validation.num_tokens / tokens:.2%}"),
    ]


def main() -> None:
    """Read the command line, make the corpus and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="files and folders of text")
    parser.add_argument("--out", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--vocabulary", choices=list(VOCABULARIES), default="characters")
    parser.add_argument("--validation-share", type=float, default=0.05)
    parser.add_argument("--max-document-chars", type=int, default=65536)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pattern", action="append", help=f"default: {' '.join(PATTERNS)}")
    parser.add_argument("--overwrite", action="store_true")
    chosen = parser.parse_args()
    started = time.perf_counter()
    try:
        corpus = prepare_corpus(
            chosen.sources,
            chosen.out,
            vocabulary=chosen.vocabulary,
            validation_share=chosen.validation_share,
            seed=chosen.seed,
            max_document_chars=chosen.max_document_chars,
            patterns=chosen.pattern or PATTERNS,
            overwrite=chosen.overwrite,
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))
    rows = [*summary(corpus), ("seconds", f"{time.perf_counter() - started:.1f}")]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
