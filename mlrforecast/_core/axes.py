"""The one legend of axis letters, used in every shape annotation of the library."""

AXES: dict[str, str] = {
    "B": "batch",
    "C": "channels (target columns)",
    "D": "model width",
    "F": "future steps (prediction_length)",
    "G": "key and value heads (H, or fewer for grouped-query heads)",
    "H": "attention heads",
    "N": "tokens (patches), or windows where a docstring says so",
    "P": "patch length",
    "Q": "quantile levels",
    "R": "head width: the columns that a score compares (MLR: the sum of the ranks)",
    "S": "key steps",
    "T": "time or query steps",
    "V": "value width of a head",
}
"""Axis letter -> meaning. Levels are counted ``num_levels`` and indexed ``lvl``."""
