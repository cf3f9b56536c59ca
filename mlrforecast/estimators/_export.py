"""Programs that forecast without this library."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor, fx, nn

from mlrforecast._core.atomic import write_whole
from mlrforecast._core.optional import import_optional
from mlrforecast.data import ForecastWindows
from mlrforecast.data.scaling import LEAST_IQR, NORMAL_IQR, Scaling
from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.nn import DISTRIBUTIONS
from mlrforecast.training.seeding import PROCESS_STATE

Format: TypeAlias = Literal["torch", "onnx"]

SUFFIXES: dict[Format, str] = {"torch": ".pt2", "onnx": ".onnx"}

OPSET = 18
"""Version of the operators of ONNX."""


class ForecastProgram(nn.Module):
    """A network with the scaling of its contexts: raw values in, forecasts in their unit out.

    Parameters
    ----------
    model : EncoderForecaster
        The network; it is copied.
    """

    def __init__(self, model: EncoderForecaster) -> None:
        super().__init__()
        self.model = deepcopy(model).cpu().eval().requires_grad_(False)

    def forward(
        self,
        context: Tensor,
        past_covariates: Tensor | None = None,
        known_covariates: Tensor | None = None,
        static_covariates: Tensor | None = None,
        calendar: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Return the point forecast (B, F, C), and its quantiles or parameters (B, F, C, K).

        ``context`` is (B, T, C) in float64, NaN where missing; a channel without any value has
        the forecast NaN. The covariates are those of a :class:`mlrforecast.data.ForecastBatch`.
        """
        config, num_channels = self.model.config, context.shape[2]
        # Each channel is a window of its own, with the covariates of all.
        windows = context.movedim(2, 1).flatten(0, 1).unsqueeze(-1)
        covariates = {
            "past_covariates": past_covariates,
            "known_covariates": known_covariates,
            "static_covariates": static_covariates,
            "calendar": calendar,
        }
        observed = ~windows.isnan()
        scaled = scale_contexts(windows.nan_to_num(0.0), observed, config.data_scaling)
        point, details = self.model(
            scaled.values.float(),
            observed,
            **{name: _repeat(each, num_channels) for name, each in covariates.items()},
        )
        # What nothing is known of has no forecast.
        scale = scaled.scale.where(observed.any(dim=1, keepdim=True), torch.nan)
        shape = context.shape[0], num_channels
        rescaled = _unfold(point.double() * scale + scaled.loc, *shape)
        if details is None:
            return (rescaled,)
        details = _rescale_details(config, details.double(), scaled.loc, scale)
        return rescaled, _unfold(details, *shape)


def _repeat(covariates: Tensor | None, num_channels: int) -> Tensor | None:
    """Give every channel the covariates of its window: (B, ...) to (B * C, ...)."""
    if covariates is None:
        return None
    return covariates.unsqueeze(1).expand(-1, num_channels, *covariates.shape[1:]).flatten(0, 1)


def _unfold(x: Tensor, batch: int, num_channels: int) -> Tensor:
    """Give channels their axis back: (B * C, F, 1, ...) to (B, F, C, ...)."""
    return x.squeeze(2).reshape(batch, num_channels, *x.shape[1:2], *x.shape[3:]).movedim(1, 2)


class ScaledContexts(NamedTuple):
    """Contexts (B, T, C) in their own unit, 0 where missing, and the way back (B, 1, C)."""

    values: Tensor
    loc: Tensor
    scale: Tensor


def scale_contexts(values: Tensor, observed: Tensor, scaling: Scaling | None) -> ScaledContexts:
    """Do with tensors what :func:`mlrforecast.data.scaling.scale_windows` does with arrays.

    ``values`` are 0 where they are not ``observed``.
    """
    count = observed.sum(dim=1, keepdim=True).clamp(min=1)
    zero = torch.zeros_like(values[:, :1])
    if scaling is None:
        return ScaledContexts(values, zero, zero + 1)
    if scaling == "mean_abs":
        size = _not_zero(values.abs().amax(dim=1, keepdim=True))
        scale = _not_zero((values.abs() / size).sum(dim=1, keepdim=True) / count * size)
        return ScaledContexts(values / scale, zero, scale)
    steps = torch.arange(values.shape[1], device=values.device)[:, None]
    # The newest value is taken out first, and the size next: neither costs digits.
    level = values.gather(1, (steps * observed).argmax(dim=1, keepdim=True))
    centred = (values - level) * observed
    size = _not_zero(centred.abs().amax(dim=1, keepdim=True))
    centred = centred / size
    mean = centred.sum(dim=1, keepdim=True) / count
    around = (centred - mean) * observed
    deviation = (around.square().sum(dim=1, keepdim=True) / count).sqrt()
    if scaling == "robust":
        lower, mean, upper = _quartiles(centred, observed)
        distance = (upper - lower) / NORMAL_IQR
        deviation = distance.where(distance > LEAST_IQR * deviation, deviation)
        around = (centred - mean) * observed
    deviation = _not_zero(deviation)
    return ScaledContexts(around / deviation, level + mean * size, deviation * size)


def _not_zero(x: Tensor) -> Tensor:
    """Put 1 in the place of 0."""
    return x.where(x != 0, 1.0)


def _quartiles(values: Tensor, observed: Tensor) -> list[Tensor]:
    """Return the quartiles of the observed values of each channel, 0 where there are none."""
    # Missing values stand last.
    ordered = values.masked_fill(~observed, torch.finfo(values.dtype).max).sort(dim=1).values
    last = (observed.sum(dim=1, keepdim=True) - 1).clamp(min=0)
    found = []
    for share in (0.25, 0.5, 0.75):
        place = share * last.to(values.dtype)
        below = place.floor().long()
        low = ordered.gather(1, below)
        high = ordered.gather(1, (below + 1).minimum(last))
        quartile = low + (place - below) * (high - low)
        found.append(quartile.where(observed.any(dim=1, keepdim=True), 0.0))
    return found


def _rescale_details(config: EncoderConfig, details: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """Bring quantiles, or parameters of distributions, into the unit of the series."""
    loc, scale = loc.unsqueeze(-1), scale.unsqueeze(-1)
    if config.loss not in DISTRIBUTIONS:
        return details * scale + loc
    if DISTRIBUTIONS[config.loss].is_count:
        # Counts were not scaled; the scale is 1, or NaN.
        return details * scale
    centre, size, shape = details.split([1, 1, details.shape[-1] - 2], dim=-1)
    return torch.cat([centre * scale + loc, size * scale, shape + 0 * scale], dim=-1)


def inputs_of(windows: ForecastWindows) -> dict[str, Tensor]:
    """Return what a program is given to forecast from some windows."""
    everything = slice(0, len(windows))
    batch = windows.gather(everything).batch
    given = {
        "context": torch.from_numpy(windows.contexts(everything)),
        "past_covariates": batch.past_covariates,
        "known_covariates": batch.known_covariates,
        "static_covariates": batch.static_covariates,
        "calendar": batch.calendar,
    }
    return {name: tensor for name, tensor in given.items() if tensor is not None}


def export(model: EncoderForecaster, path: str | PathLike[str], format: str) -> None:  # noqa: A002
    """Write the program of a network to a file."""
    chosen = _check_format(format)
    path = _check_path(path, SUFFIXES[chosen])
    if chosen == "onnx":
        import_optional("onnxscript", extra="onnx", purpose="The export to ONNX")
    with PROCESS_STATE, _quiet(), torch.no_grad():
        try:
            program = _trace(model)
            content = _to_onnx(program, model.config) if chosen == "onnx" else _to_bytes(program)
        except Exception as error:
            reason = str(error).strip().split("\n")[0]
            raise ValueError(
                f"This network cannot be exported with `format`={format!r}: "
                f"{type(error).__name__}: {reason}"
            ) from error
    write_whole(path, content)


def _check_format(given: str) -> Format:
    """Return a known format."""
    for known in get_args(Format):
        if given == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"`format` must be one of {', '.join(get_args(Format))}, got {given!r}.")


def _check_path(given: str | PathLike[str], suffix: str) -> Path:
    """Return a path that a file of the format can have."""
    if not isinstance(given, str | PathLike):
        raise TypeError(f"`path` must be a path, got {given!r}.")
    path = Path(given)
    if path.suffix != suffix:
        raise ValueError(f"`path` must end in {suffix!r} for this `format`, got {str(path)!r}.")
    if path.is_dir():
        raise IsADirectoryError(f"`path` must be a file, but {str(path)!r} is a folder.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder of `path` does not exist: {str(path.parent)!r}.")
    return path


def _trace(model: EncoderForecaster) -> torch.export.ExportedProgram:
    """Return the program for any number of windows and channels."""
    inputs = _example(model.config)
    batch, channels = torch.export.Dim("batch"), torch.export.Dim("channels")
    shapes = {name: {0: batch} for name in inputs}
    shapes["context"] = {0: batch, 2: channels}
    program = torch.export.export(
        ForecastProgram(model), (), kwargs=inputs, dynamic_shapes=shapes, strict=False
    )
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
            # It names files of this machine.
            node.meta.pop("stack_trace", None)
    return program


def _example(config: EncoderConfig) -> dict[str, Tensor]:
    """Return inputs of the right shapes, of 3 windows and 2 channels; they hold no data."""
    total = config.context_length + config.prediction_length
    shapes = {
        "past_covariates": (config.context_length, len(config.past_cardinalities)),
        "known_covariates": (total, len(config.known_cardinalities)),
        "static_covariates": (len(config.static_cardinalities),),
        "calendar": (config.prediction_length, config.num_calendar_features),
    }
    covariates = {name: torch.zeros(3, *shape) for name, shape in shapes.items() if shape[-1]}
    return {"context": torch.zeros(3, config.context_length, 2).double(), **covariates}


def _to_bytes(program: torch.export.ExportedProgram) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def _to_onnx(program: torch.export.ExportedProgram, config: EncoderConfig) -> bytes:
    exported: Any = torch.onnx.export(
        # ONNX has no ellipsis of two lengths in one einsum, so that becomes products of matrices.
        program.run_decompositions(),
        (),
        kwargs=_example(config),
        input_names=list(_example(config)),
        output_names=_names_of_outputs(config),
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    content: bytes = exported.model_proto.SerializeToString()
    return content


def _names_of_outputs(config: EncoderConfig) -> list[str]:
    """Return what a program gives back."""
    if config.loss in DISTRIBUTIONS:
        return ["point", "parameters"]
    return ["point", "quantiles"] if config.loss == "quantile" else ["point"]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence hints on the inner workings of torch's exporters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
