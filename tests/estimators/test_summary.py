"""What a fitted forecaster says of itself, as text and as HTML."""

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from torch import nn

from mlrforecast import MLRForecaster
from mlrforecast.estimators._summary import Summary, summarise
from mlrforecast.models import count_flops
from tests.estimators.frames import TINY, long, wide


class Identity(nn.Module):
    """A backbone of unknown cost."""

    def forward(self, tokens, key_mask):
        return tokens


class Tags(HTMLParser):
    """Open tags that must be closed, and the text between them."""

    def __init__(self):
        super().__init__()
        self.open, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(html):
    parser = Tags()
    parser.feed(html)
    assert parser.open == []
    return parser.texts


def test_a_wide_frame_and_its_network(on_wide):
    sections = summarise(on_wide).sections
    assert list(sections) == ["data", "network", "training", "calibration"]
    assert sections["data"] == {
        "series": "2 columns: a, b",
        "frequency": "h, a season of 24 steps",
        "calendar": "day",
    }
    network = sections["network"]
    assert network["forecast"] == "6 steps from 24"
    length, patch = on_wide.model_.embedding.num_tokens, on_wide.config_.patch_length
    assert network["tokens"] == f"{length} tokens of {patch} step{'s' if patch > 1 else ''}"
    assert network["attention"] == "mlr in 1 layer"
    assert network["parameters"] == f"{on_wide.num_parameters_:,}"
    assert network["FLOPs"].startswith(f"{count_flops(on_wide.model_).total:,} for")
    levels = network["levels"].split("\n")
    assert levels[0] == "1: rank 2, all 24 steps"
    assert re.fullmatch(r"2: rank 1, blocks of \d+ steps", levels[1])
    assert sections["training"]["steps"] == "3"
    assert sections["training"]["loss"].startswith("quantile, levels 0.1, 0.2")
    assert sections["calibration"] == {"method": "none"}


def test_a_long_frame_with_covariates():
    frame = long()
    frame["price"], frame["shop"] = np.arange(len(frame)) % 7, "x"
    forecaster = MLRForecaster(
        **TINY, known_covariates=["price"], static_covariates=["shop"], calendar=False, loss="mae"
    ).fit(frame)
    sections = summarise(forecaster).sections
    assert sections["data"] == {
        "series": "3 items",
        "frequency": "h, a season of 24 steps",
        "known covariates": "price",
        "static covariates": "shop",
        "calendar": "not read",
    }
    assert sections["training"] == {"loss": "mae", "steps": "3"}


def test_scores_with_a_window_and_without_levels():
    forecaster = MLRForecaster(
        **TINY,
        attention="mlr_window",
        attention_options={"window": 2},
        patch_length=4,
        patch_stride=2,
        ranks=(3, 1),
        block_sizes=(None, 4),
    ).fit(wide())
    network = summarise(forecaster).sections["network"]
    assert network["tokens"] == "11 tokens of 4 steps, 2 steps apart"
    assert network["levels"] == "1: rank 3, window of 12 steps\n2: rank 1, blocks of 10 steps"
    standard = MLRForecaster(**TINY, attention="standard").fit(wide())
    assert "levels" not in summarise(standard).sections["network"]


@pytest.mark.usefixtures("seeded")
def test_a_backbone_of_unknown_cost_has_no_flops():
    forecaster = MLRForecaster(**TINY, backbone=Identity()).fit(wide())
    network = summarise(forecaster).sections["network"]
    assert network["backbone"] == "Identity"
    assert not {"FLOPs", "levels", "attention"} & set(network)


def test_a_loaded_forecaster_says_what_it_still_knows(on_wide, tmp_path):
    on_wide.save(tmp_path / "model")
    loaded = MLRForecaster.load(tmp_path / "model")
    before, after = (summarise(one).sections for one in (on_wide, loaded))
    assert after["data"]["series"] == "not saved with the model"
    assert after["network"] == before["network"]
    assert after["data"]["frequency"] == before["data"]["frequency"]


def test_a_calibration_shows_coverage_before_and_after(on_wide):
    table = pd.DataFrame({"before": [np.nan, 0.704], "after": [0.5, 0.8]}, index=[0.5, 0.8])
    told = SimpleNamespace(
        **{
            name: getattr(on_wide, name)
            for name in ("context_", "freq_", "season_length_", "encoding_", "model_")
        },
        calibration_=SimpleNamespace(method="split", num_windows=1200, coverage=table),
    )
    assert summarise(told).sections["calibration"] == {
        "method": "split",
        "windows": "1,200",
        "coverage": "50% nominal: 50% after\n80% nominal: 70% before, 80% after",
    }


def test_many_columns_are_not_all_named():
    forecaster = MLRForecaster(**TINY).fit(wide(columns=[f"c{number}" for number in range(9)]))
    series = summarise(forecaster).sections["data"]["series"]
    assert series == "9 columns: c0, c1, c2, c3, c4, c5 and 3 more"


def test_text_is_aligned():
    summary = Summary({"data": {"series": "2", "frequency": "h"}, "network": {"levels": "1\n2"}})
    assert repr(summary).split("\n") == [
        "data",
        "  series     2",
        "  frequency  h",
        "network",
        "  levels     1",
        "             2",
    ]


def test_html_is_escaped_and_holds_the_same(on_wide):
    summary = Summary({"<b>": {"a & b": "<script>\n2"}})
    html = summary._repr_html_()
    assert "<script>" not in html
    assert read(html) == ["<b>", "a & b", "<script>", "2"]
    told = summarise(on_wide)
    texts = "\n".join(read(told._repr_html_()))
    for facts in told.sections.values():
        for name, fact in facts.items():
            assert name in texts
            assert fact in texts
