import importlib.util
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError, MissingDependencyError
from mlrforecast.data import gluonts_to_long_frame, load_gluonts

ENTRIES = [
    {"item_id": "b", "start": pd.Period("2024-01-31 22:00", "h"), "target": np.arange(3.0)},
    {"item_id": 7, "start": "2024-02-29 23:00", "target": [np.nan, 5]},
]


@pytest.mark.parametrize("freq", ["h", "H", "1H"])
def test_entries_become_a_long_frame_in_their_order(freq):
    frame = gluonts_to_long_frame(iter(ENTRIES), freq)

    expected = pd.DataFrame(
        {
            "item_id": ["b", "b", "b", "7", "7"],
            "timestamp": pd.to_datetime(
                [
                    "2024-01-31 22:00",
                    "2024-01-31 23:00",
                    "2024-02-01 00:00",
                    "2024-02-29 23:00",
                    "2024-03-01 00:00",
                ]
            ),
            "target": [0.0, 1.0, 2.0, np.nan, 5.0],
        }
    )
    pd.testing.assert_frame_equal(
        frame.astype({"timestamp": "datetime64[ns]"}),
        expected.astype({"timestamp": "datetime64[ns]"}),
    )


def test_monthly_periods_give_the_start_of_each_month():
    frame = gluonts_to_long_frame([{"start": "2023-12", "target": [1, 2]}], "ME")

    assert list(frame["timestamp"]) == [pd.Timestamp("2023-12-01"), pd.Timestamp("2024-01-01")]
    assert list(frame["item_id"]) == ["0", "0"]


def test_start_that_is_a_period_keeps_its_own_multiple():
    entry = {"start": pd.Period("2024-01-01", "2D"), "target": [1, 2]}
    assert list(gluonts_to_long_frame([entry], "D")["timestamp"].diff().dt.days)[1] == 2


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "at least one series"),
        ([ENTRIES[0], ENTRIES[0]], "item_id 'b' occurs twice, again at entry 1"),
        ([{"item_id": "c", "target": [1.0]}], r"entry 0 \(item_id 'c'\) lacks \['start'\]"),
        ([{**ENTRIES[0], "target": np.ones((2, 3))}], r"'b' must have one dimension.*\(2, 3\)"),
    ],
)
def test_entries_that_break_a_rule_are_named(entries, message):
    with pytest.raises(DataError, match=message):
        gluonts_to_long_frame(entries, "h")


@pytest.mark.skipif(importlib.util.find_spec("gluonts") is not None, reason="gluonts is installed")
def test_without_gluonts_the_error_says_how_to_install_it():
    with pytest.raises(
        MissingDependencyError,
        match=r"GluonTS data set 'm4_hourly' needs 'gluonts.*pip install 'mlrforecast\[gluonts\]'",
    ):
        load_gluonts("m4_hourly")


def test_load_uses_the_split_that_was_asked_for(monkeypatch):
    dataset = SimpleNamespace(train=ENTRIES[:1], test=ENTRIES, metadata=SimpleNamespace(freq="H"))
    repository = SimpleNamespace(
        get_dataset={"tiny": dataset}.__getitem__, dataset_names=["tiny", "other"]
    )
    monkeypatch.setattr("mlrforecast.data.gluonts.import_optional", lambda *_, **__: repository)
    assert len(load_gluonts("tiny")) == 5
    assert len(load_gluonts("tiny", split="train")) == 3
    with pytest.raises(ValueError, match=r"`name` must .*, got 'huge'. Available: other, tiny"):
        load_gluonts("huge")


DAYS = pd.DataFrame(
    {
        "item_id": ["b"] * 3 + ["a"] * 2,
        "timestamp": [
            *pd.date_range("2024-02-28", periods=3),
            *pd.date_range("2024-03-01", periods=2),
        ],
        "target": [1.0, np.nan, 3.0, 4.0, 5.0],
    }
)


class TestWithGluonTS:
    """The conversion of what GluonTS itself makes, written and read on this machine."""

    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("gluonts")

    def check(self, entries, freq, expected):
        """Compare the frame of some entries; GluonTS may order the items and hold float32."""
        frame = gluonts_to_long_frame(entries, freq)
        frame = frame.astype({"timestamp": "datetime64[ns]"}).sort_values(
            ["item_id", "timestamp"], kind="stable", ignore_index=True
        )
        expected = expected.astype({"timestamp": "datetime64[ns]"}).sort_values(
            ["item_id", "timestamp"], ignore_index=True
        )
        pd.testing.assert_frame_equal(frame, expected)

    def listed(self, freq="D", start="2024-02-28", targets=((1.0, np.nan, 3.0),), **options):
        from gluonts.dataset.common import ListDataset

        rows = [
            {"item_id": f"item {at}", "start": start, "target": target}
            for at, target in enumerate(targets)
        ]
        return ListDataset(rows, freq=freq, **options)

    def test_a_pandas_dataset_of_a_long_frame(self):
        from gluonts.dataset.pandas import PandasDataset

        dataset = PandasDataset.from_long_dataframe(
            DAYS, item_id="item_id", timestamp="timestamp", freq="D"
        )
        self.check(dataset, dataset.freq, DAYS)

    def test_a_pandas_dataset_of_series_by_name(self):
        from gluonts.dataset.pandas import PandasDataset

        series = {
            item: rows.set_index("timestamp")["target"] for item, rows in DAYS.groupby("item_id")
        }
        self.check(PandasDataset(series, freq="D"), "D", DAYS)

    @pytest.mark.parametrize(
        ("freq", "start", "stamps"),
        [
            ("h", "2024-02-29 22:00", ["2024-02-29 22:00", "2024-02-29 23:00", "2024-03-01 00:00"]),
            ("15min", "2024-02-29 23:45", ["2024-02-29 23:45", "2024-03-01", "2024-03-01 00:15"]),
            ("2D", "2024-02-28", ["2024-02-28", "2024-03-01", "2024-03-03"]),
            # A week is named by its last day and stamped by its first.
            ("W-WED", "2024-02-28", ["2024-02-22", "2024-02-29", "2024-03-07"]),
            ("ME", "2024-01-31", ["2024-01-01", "2024-02-01", "2024-03-01"]),
            ("QE", "2024-01-31", ["2024-01-01", "2024-04-01", "2024-07-01"]),
            ("YE", "2024-01-31", ["2024-01-01", "2025-01-01", "2026-01-01"]),
        ],
    )
    def test_a_list_dataset_of_any_frequency(self, freq, start, stamps):
        expected = pd.DataFrame(
            {
                "item_id": "item 0",
                "timestamp": [pd.Timestamp(stamp) for stamp in stamps],
                "target": [1.0, np.nan, 3.0],
            }
        )
        self.check(self.listed(freq, start), freq, expected)

    def test_a_multivariate_entry_is_refused_by_its_id(self):
        both = self.listed(targets=[np.ones((2, 3))], one_dim_target=False)
        with pytest.raises(DataError, match=r"'item 0' must have one dimension.*\(2, 3\)"):
            gluonts_to_long_frame(both, "D")

    def test_windows_of_a_rolling_test_set_are_refused_by_their_id(self):
        from gluonts.dataset.split import split

        _, template = split(self.listed(targets=[range(9)]), offset=-4)
        windows = template.generate_instances(prediction_length=2, windows=2)
        with pytest.raises(DataError, match="'item 0' occurs twice, again at entry 1"):
            gluonts_to_long_frame((inputs for inputs, _ in windows), "D")

    def test_a_data_set_of_the_repository_that_lies_on_disk(self, tmp_path, monkeypatch):
        from gluonts.dataset import repository
        from gluonts.dataset.common import FileDataset, MetaData, TrainDatasets
        from gluonts.dataset.jsonl import JsonLinesWriter

        whole, cut = ([1.5, np.nan, 3.0], [7.0]), ([1.5], [7.0])
        saved = TrainDatasets(
            MetaData(freq="h"), self.listed("h", targets=cut), self.listed("h", targets=whole)
        )
        saved.save(str(tmp_path / "m4_hourly"), writer=JsonLinesWriter())
        monkeypatch.setattr(
            repository, "get_dataset", partial(repository.get_dataset, path=tmp_path)
        )

        expected = gluonts_to_long_frame(
            [
                {"item_id": f"item {at}", "start": "2024-02-28", "target": target}
                for at, target in enumerate(whole)
            ],
            "h",
        )
        pd.testing.assert_frame_equal(load_gluonts("m4_hourly"), expected)
        assert load_gluonts("m4_hourly", split="train")["target"].tolist() == [1.5, 7.0]
        self.check(FileDataset(tmp_path / "m4_hourly" / "test", freq="h"), "h", expected)

    def test_a_name_that_gluonts_does_not_know_is_told_before_anything_is_fetched(self):
        with pytest.raises(ValueError, match=r"got 'm4_hourlyy'. Available: .*m4_hourly,"):
            load_gluonts("m4_hourlyy")
