"""The one legend of axis letters, used in every shape annotation of the library."""

AXES: dict[str, str] = {
    "B": "batch",
    "C": "channels (target columns)",
    "D": "model width",
    "F": "future steps (prediction_length)",
    "H": "attention heads",
    "N": "tokens (patches), or windows where a docstring says so",
    "P": "patch length",
    "Q": "quantile levels",
    "R": "head width (the sum of the ranks)",
    "S": "key steps",
    "T": "time or query steps",
    "V": "value width of a head",
}
"""Axis letter -> meaning. Levels are counted ``num_levels`` and indexed ``lvl``."""
