"""What tests of models of transformers share."""

import logging

import pytest
import torch

from mlrforecast.integrations import huggingface

# Here, for its import draws random numbers.
transformers = pytest.importorskip("transformers")


@pytest.fixture
def hf():
    """Our module of transformers, and its messages of every load left out."""
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    yield huggingface
    transformers.utils.logging.enable_progress_bar()
    logging.disable(logging.NOTSET)


def shaken(model, size=0.3):
    """Give a model weights with which attention matters; drawn small, it hardly does."""
    for parameter in model.parameters():
        parameter.data += size * torch.randn(parameter.shape)
    return model.eval()


def close(one, other, tolerance=2e-5):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def differ(one, other):
    return (one - other).abs().max() > 1e-3
