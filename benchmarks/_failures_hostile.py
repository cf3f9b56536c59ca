"""The group "hostile" of ``failures.py``: models made to do harm, under checksums that fit."""

import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _failures_harm import Payload, cut, edit, file_of, put, refused, replace
from _failures_lab import Row, Workshop
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes


def hostile(shop: Workshop) -> Iterator[Row]:
    """Load models that somebody has made to do harm."""
    for how, change in CHANGES.items():
        yield refused(shop, "load", "config, sealed", how, partial(edit, change=change))
    for how, text in TEXTS.items():
        yield refused(shop, "load", "config", how, partial(_text, text=text))
    for how, harm in SPOILT.items():
        yield refused(shop, "load", "model, under its own digest", how, harm)
    for part in ("config", "model"):
        for by in ("a pipe", "a folder", "an endless device", "itself"):
            how = f"replaced by {by if by in ('a pipe', 'a folder') else f'a link to {by}'}"
            yield refused(shop, "load", part, how, partial(replace, part=part, by=by))
        grow = partial(cut, part=part, size=2**43)
        yield refused(shop, "load", part, "8 TB of zeros at its end", grow)


def _both(document: dict[str, Any], **fields: Any) -> None:
    for part in ("parameters", "config"):
        document[part].update(fields)


def _text(folder: Path, text: bytes) -> None:
    (folder / "config.json").write_bytes(text)


def _pickle(folder: Path) -> None:
    put(folder, pickle.dumps(Payload(folder.parent / "executed")))


def _torch_file(folder: Path) -> None:
    torch.save(Payload(folder.parent / "executed"), folder.parent / "payload")
    put(folder, (folder.parent / "payload").read_bytes())


def _bomb(folder: Path) -> None:
    with zipfile.ZipFile(folder.parent / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", bytes(10**8))
    put(folder, (folder.parent / "bomb").read_bytes())


def _header(folder: Path, described: dict[str, Any]) -> None:
    text = json.dumps(described).encode()
    put(folder, len(text).to_bytes(8, "little") + text + bytes(4))


def _other_weights(folder: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    tensors = load_file(file_of(folder, "model"))
    name = max(tensors)
    put(folder, to_bytes(tensors | {name: change(tensors[name])}))


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "attention names a function": lambda d: _both(d, attention="os.system"),
    "loss names a function": lambda d: _both(d, loss="__import__"),
    "a parameter names a class": lambda d: d["parameters"].update(callback="os.system"),
    "a field names a class": lambda d: d["config"].update(_target_="builtins.eval"),
    "a custom backbone": lambda d: d.update(backbone="torch.nn.Identity"),
    "a key more": lambda d: d.update(hook="os.system('touch executed')"),
    "files outside of the folder": lambda d: d.update(sha256={"../x.safetensors": "0" * 64}),
    "a width for no memory": lambda d: _both(d, width=10**9),
    "a context for no memory": lambda d: _both(d, context_length=10**12),
    "layers without end": lambda d: _both(d, num_layers=10**9),
    "a frequency of 100,000 letters": lambda d: d.update(freq="h" * 10**5),
    "a time zone as path": lambda d: d["context"]["time"].update(zone="../../etc/passwd"),
    "a zero in front of the frequency": lambda d: d.update(freq="0h"),
    "checkpoints to a folder": lambda d: d["parameters"].update(checkpoint_dir="x"),
}
TEXTS = {
    "100,000 brackets": b"[" * 10**5,
    "a number of 5,000 digits": b'{"format": ' + b"9" * 5000 + b"}",
    "no text": b"\xff\xfe\x00",
}
SPOILT: dict[str, Callable[[Path], Any]] = {
    "a pickle that runs code": _pickle,
    "a file of torch.save that runs code": _torch_file,
    "an archive of 100 MB of zeros": _bomb,
    "shapes beyond the file": partial(
        _header,
        described={"w": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4]}},
    ),
    "offsets beyond the file": partial(
        _header, described={"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 10**15]}}
    ),
    "a header of 10^15 bytes": lambda f: put(f, (10**15).to_bytes(8, "little") + b"{}"),
    "NaN among the weights": partial(_other_weights, change=lambda w: w * float("nan")),
    "weights in float64": partial(_other_weights, change=torch.Tensor.double),
    "weights of another shape": partial(_other_weights, change=lambda w: torch.cat([w, w])),
}
