"""Forecasts of series in parquet files, by the workers of a Ray cluster of two nodes."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.data import FileDataset, FrameSchema
from mlrforecast.integrations import RayWorkers, predict_parquet
from mlrforecast.integrations.ray._rows import Columns, Preparation, find_columns, newest_rows
from tests.estimators.frames import PREDICTION, TINY, long

pa = pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")

from tests.ray_cluster import RayCluster, ray_cluster  # noqa: E402 - it needs ray

# Ray's own: sockets that its processes close, and news of what it will do one day.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::FutureWarning",
    "ignore::DeprecationWarning:ray.data.context",
)

KEYS = ["item_id", "timestamp"]
LEVELS = [0.1, 0.9]
ITEMS = [f"shop {number}" for number in range(30)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Shuffled rows with covariates of all roles; static ones stand in old rows alone."""
    rows = long(ITEMS, range(60, 90))
    generator = np.random.default_rng(0)
    rows["promo"] = generator.normal(size=len(rows))
    rows["kind"] = pd.Categorical(generator.choice(["sale", "plain"], len(rows)))
    old = rows.groupby("item_id").cumcount() < 5
    rows["region"] = ("region " + rows["item_id"].str[-1]).where(old)
    return rows.sample(frac=1, random_state=0, ignore_index=True)


@pytest.fixture(scope="module")
def future(frame: pd.DataFrame) -> pd.DataFrame:
    generator = np.random.default_rng(1)
    steps = 2 * PREDICTION
    last = frame.groupby("item_id")["timestamp"].max()
    parts = [
        pd.DataFrame(
            {
                "item_id": item,
                "timestamp": pd.date_range(last[item], periods=steps + 1, freq="h")[1:],
                "promo": generator.normal(size=steps),
            }
        )
        for item in ITEMS
    ]
    return pd.concat([*parts, parts[0].assign(item_id="another shop")], ignore_index=True)


@pytest.fixture(scope="module")
def fitted(frame: pd.DataFrame) -> MLRForecaster:
    roles: dict[str, Any] = {
        "known_covariates": ["promo"],
        "past_covariates": ["kind"],
        "static_covariates": ["region"],
    }
    return MLRForecaster(**TINY, **roles).fit(frame)


@pytest.fixture(scope="module")
def plain(frame: pd.DataFrame) -> MLRForecaster:
    return MLRForecaster(**TINY, target="target").fit(frame[[*KEYS, "target"]])


def write(frame: pd.DataFrame, folder: Path, parts: int) -> Path:
    """Files that each hold rows of every series."""
    folder.mkdir()
    for number in range(parts):
        frame[number::parts].to_parquet(folder / f"{number}.parquet", index=False)
    return folder


def assert_same(folder: Path, expected: pd.DataFrame) -> None:
    """The rows of files are those of a frame, in any order of the series."""
    found = pd.read_parquet(folder)
    assert list(found.columns) == list(expected.columns)
    assert (found["item_id"].ne(found["item_id"].shift()).sum()) == expected["item_id"].nunique()
    found, expected = (each.sort_values(KEYS, ignore_index=True) for each in (found, expected))
    pd.testing.assert_frame_equal(found, expected, check_exact=False, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_numbers_are_those_of_predict(
    cluster: RayCluster,
    fitted: MLRForecaster,
    frame: pd.DataFrame,
    future: pd.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With covariates, levels, more steps than were trained, and a model in a folder."""
    monkeypatch.setattr("mlrforecast.integrations.ray._predict.PART", 800)
    monkeypatch.chdir(tmp_path)
    source, ahead = write(frame, tmp_path / "rows", 5), write(future, tmp_path / "ahead", 2)
    fitted.save(tmp_path / "model")
    (tmp_path / "forecast").mkdir()
    environment = dict(os.environ)
    out = predict_parquet(
        tmp_path / "model",
        "rows/*.parquet",
        "forecast",
        future=ahead,
        prediction_length=8,
        quantile_levels=LEVELS,
        workers=RayWorkers(address=cluster.address),
        progress=False,
    )
    printed = capfd.readouterr()
    # A node that is short of CPUs tells of its many processes.
    lines = [line for line in printed.out.splitlines() if "(raylet)" not in line]
    assert (lines, printed.err) == ([], "")
    assert dict(os.environ) == environment
    assert not ray.is_initialized()
    assert out == tmp_path / "forecast"
    assert {path.name for path in tmp_path.iterdir()} == {"ahead", "forecast", "model", "rows"}
    assert len(list(out.iterdir())) > 2
    assert {path.suffix for path in out.iterdir()} == {".parquet"}
    options = {"prediction_length": 8, "quantile_levels": LEVELS}
    assert_same(out, fitted.predict(frame, future=future, **options))
    assert source.is_dir()


@pytest.mark.slow
def test_an_error_of_a_worker_is_that_of_predict(
    cluster: RayCluster, plain: MLRForecaster, frame: pd.DataFrame, tmp_path: Path
) -> None:
    """Nothing is left of a forecast that failed."""
    rows = frame[[*KEYS, "target"]]
    newest = rows.groupby("item_id")["timestamp"].transform("max")
    gap = (rows["item_id"] == ITEMS[3]) & (rows["timestamp"] == newest - pd.Timedelta(hours=3))
    source = write(rows[~gap], tmp_path / "rows", 2)
    with pytest.raises(DataError, match=f"series '{ITEMS[3]}'") as caught:
        predict_parquet(
            plain,
            source,
            tmp_path / "forecast",
            workers=RayWorkers(address=cluster.address),
            progress=False,
        )
    assert caught.type is DataError
    assert not caught.value.__notes__
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def columns_of(frame: pd.DataFrame, tmp_path: Path, schema: FrameSchema) -> Columns:
    frame.to_parquet(tmp_path / "rows.parquet")
    return find_columns(FileDataset(tmp_path / "rows.parquet"), None, schema)


def test_newest_rows_of_parts_are_those_of_the_whole(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Also of static covariates, whose values may stand in rows that go."""
    schema = FrameSchema(target="target", static_covariates=("region",))
    columns = columns_of(frame, tmp_path, schema)
    names = list(columns.types)
    table = pa.Table.from_pandas(frame[names], preserve_index=False)
    parts = [newest_rows(table.take(list(range(n, len(frame), 3))), columns, 20) for n in range(3)]
    found = newest_rows(pa.concat_tables(parts), columns, 20).to_pandas()
    expected = frame.sort_values(KEYS).groupby("item_id").tail(20)[names]
    expected["region"] = "region " + expected["item_id"].str[-1]
    pd.testing.assert_frame_equal(
        found.sort_values(KEYS, ignore_index=True), expected.reset_index(drop=True)
    )


def test_rows_without_a_time_stay_to_be_complained_about(tmp_path: Path) -> None:
    frame = long()
    columns = columns_of(frame, tmp_path, FrameSchema())
    frame.loc[0, "timestamp"] = pd.NaT
    found = newest_rows(pa.Table.from_pandas(frame, preserve_index=False), columns, 4)
    assert found["timestamp"].null_count == 1
    assert len(found) == 12


@pytest.mark.parametrize("kind", ["object", "category", "string"])
def test_items_have_one_number_in_all_files(kind: str, tmp_path: Path) -> None:
    frame = long()
    columns = columns_of(frame, tmp_path, FrameSchema())
    prepare = Preparation(columns, 5)
    whole = prepare.history(pa.Table.from_pandas(frame, preserve_index=False)).to_pandas()
    other = frame[frame["item_id"] == "m"].astype({"item_id": kind})
    part = prepare.history(pa.Table.from_pandas(other, preserve_index=False)).to_pandas()
    keys = whole.groupby("item_id")["__mlrforecast_series__"].unique()
    assert keys["m"].tolist() == part["__mlrforecast_series__"].unique().tolist()
    assert len({key[0] for key in keys}) == 3
    assert len(whole) == 15


def test_columns_take_a_type_that_holds_the_future_too(tmp_path: Path) -> None:
    frame = long().assign(promo=np.arange(210))
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.astype({"promo": float}).to_parquet(tmp_path / "ahead.parquet")
    history, ahead = (FileDataset(tmp_path / f"{name}.parquet") for name in ("rows", "ahead"))
    columns = find_columns(history, ahead, FrameSchema(known_covariates=("promo",)))
    assert columns.types["promo"] == pa.float64()
    prepare = Preparation(columns, None)
    parts = [
        prepare.history(pa.parquet.read_table(history.files[0])),
        prepare.future(pa.parquet.read_table(ahead.files[0])),
    ]
    assert parts[0].schema == parts[1].schema
    assert parts[1]["target"].null_count == len(frame)


def test_the_future_must_be_of_the_same_kind(tmp_path: Path) -> None:
    frame = long().assign(promo=1.0)
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.assign(promo="yes").to_parquet(tmp_path / "text.parquet")
    frame.drop(columns="promo").to_parquet(tmp_path / "none.parquet")
    history = FileDataset(tmp_path / "rows.parquet")
    schema = FrameSchema(known_covariates=("promo",))
    with pytest.raises(DataError, match=r"'promo' holds double in `source` and .*string"):
        find_columns(history, FileDataset(tmp_path / "text.parquet"), schema)
    with pytest.raises(DataError, match="`future` lacks the column 'promo'"):
        find_columns(history, FileDataset(tmp_path / "none.parquet"), schema)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (long().iloc[:0], "`source` is empty"),
        (long().astype({"timestamp": str}), "must hold time stamps, dates or integers"),
        (long()[["timestamp", "target"]], "must hold the rows of a long frame"),
    ],
    ids=["empty", "text", "wide"],
)
def test_files_that_cannot_be_read_so_are_refused(
    frame: pd.DataFrame, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        columns_of(frame, tmp_path, FrameSchema())


@pytest.mark.parametrize("indexed", [False, True])
def test_items_and_time_may_be_the_index_of_a_frame(indexed: bool, tmp_path: Path) -> None:
    frame = long(names=("shop", "day", "sold"))
    schema = FrameSchema(id_column=None if indexed else "shop", target="sold")
    columns = columns_of(frame.set_index(["shop", "day"]) if indexed else frame, tmp_path, schema)
    assert (columns.item, columns.time, columns.target) == ("shop", "day", "sold")
    assert columns.indexed == indexed


class TestRefusedUpFront:
    """Before anything of Ray is started, and with nothing left behind."""

    @pytest.fixture
    def source(self, frame: pd.DataFrame, tmp_path: Path) -> Path:
        return write(frame, tmp_path / "rows", 1)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"prediction_length": 0}, "`prediction_length`"),
            ({"quantile_levels": [1.5]}, "`quantile_levels`"),
            ({"future": "rows"}, "`future` was given, but the forecaster has no known covariates"),
        ],
    )
    def test_options(
        self,
        plain: MLRForecaster,
        source: Path,
        options: dict[str, Any],
        message: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ValueError, match=message):
            predict_parquet(plain, source, "forecast", **options)
        assert [path.name for path in tmp_path.iterdir()] == ["rows"]

    def test_known_covariates_without_their_future(
        self, fitted: MLRForecaster, source: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(DataError, match=r"`future` must name the files .* 'promo'"):
            predict_parquet(fitted, source, tmp_path / "forecast")

    def test_a_folder_that_holds_something(
        self, plain: MLRForecaster, source: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(FileExistsError, match="`out` must be a new or empty folder"):
            predict_parquet(plain, source, source)
        with pytest.raises(FileExistsError, match="`out` must be a new or empty folder"):
            predict_parquet(plain, source, source / "0.parquet")

    def test_a_rolling_calibration(
        self, plain: MLRForecaster, frame: pd.DataFrame, source: Path, tmp_path: Path
    ) -> None:
        rolling = MLRForecaster(**TINY, target="target").fit(frame[[*KEYS, "target"]])
        rolling.calibrate(frame[[*KEYS, "target"]], method="rolling", refit=False, windows=2)
        with pytest.raises(ValueError, match="must not have a rolling calibration"):
            predict_parquet(rolling, source, tmp_path / "forecast")

    def test_files_that_are_not_there(self, plain: MLRForecaster, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="no file"):
            predict_parquet(plain, tmp_path / "none.parquet", tmp_path / "forecast")
