"""The whole benchmark with a stand-in for the estimator, on the embedded series."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlrforecast.baselines import repeat_last
from mlrforecast.benchmark import EttConfig, _runs, run_ett
from mlrforecast.data import load_dataset
from mlrforecast.estimators import MLRForecaster
from mlrforecast.nn import attentions

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "ett"
FITS = []


class Rolling:
    def __init__(self, forecast):
        self.forecast = forecast


class LastValue:
    """A stand-in with the interface of the estimator: it repeats the last value, plus its seed."""

    def __init__(self, prediction_length, **parameters):
        self.parameters = {"prediction_length": prediction_length, "max_steps": 7} | parameters
        self.accelerator = "cpu"
        self.num_parameters_ = 42
        self.context_length_ = 30

    def get_params(self, deep=True):
        return dict(self.parameters)

    def check_parameters(self):
        pass

    def fit(self, X):
        FITS.append((self.parameters["attention"], self.parameters["seed"], X))
        if self.parameters.get("fail"):
            raise ValueError("the fit failed")
        return self

    def backtest(self, X, *, step):
        steps = self.parameters["prediction_length"]
        windows = np.lib.stride_tricks.sliding_window_view(X.to_numpy(), 30 + steps, axis=0)
        past = windows.transpose(0, 2, 1)[:, :30]
        return Rolling(repeat_last(past, steps) + self.parameters["seed"])


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    FITS.clear()
    monkeypatch.setattr(_runs, "MLRForecaster", LastValue)


@pytest.fixture
def small():
    return EttConfig(dataset="synthetic", horizons=(24, 48), attention=("mlr",), seeds=2)


def test_every_run_has_one_row(small, tmp_path):
    results = run_ett(small, out=tmp_path)
    assert len(results) == 2 * 3 * (4 + 2)
    assert len(FITS) == 2 * 3 * 2
    assert list(results["model"].value_counts()) == [12, 6, 6, 6, 6]
    assert [path.name for path in tmp_path.iterdir()] == ["synthetic_M_folds.csv"]
    text = (tmp_path / "synthetic_M_folds.csv").read_text()
    assert len(text.splitlines()) == len(results) + 1
    assert str(tmp_path.parent) not in text
    assert set(results["windows"]) == {168 - 24 + 1, 168 - 48 + 1}


def test_without_a_folder_nothing_is_written(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(run_ett(small)) == 36
    assert list(tmp_path.iterdir()) == []


def test_the_model_is_scored_on_the_windows_of_the_floors(small):
    """Repeat-last through the estimator's interface equals the floor of that name."""
    results = run_ett(small)
    keys = ["split", "horizon"]
    floor = results[results["model"] == "repeat_last"].set_index(keys)
    model = results[results["model"] == "MLRForecaster"]
    same = model[model["seed"] == "0"].set_index(keys).loc[floor.index]
    for score in ("mse", "mae", "validation_mse"):
        np.testing.assert_allclose(same[score], floor[score], atol=1e-12)
    worse = model[model["seed"] == "1"].set_index(keys).loc[floor.index]
    assert (worse["mse"] > floor["mse"]).all()


def test_the_error_of_each_step_stands_in_one_field(small, tmp_path):
    results = run_ett(small, out=tmp_path)
    for _, row in results.iterrows():
        by_step = [float(word) for word in row["mse_by_step"].split(" ")]
        assert len(by_step) == row["horizon"]
        assert np.mean(by_step) == pytest.approx(row["mse"], rel=1e-3)
    last = results[results["model"] == "repeat_last"]["mse_by_step"].iloc[0].split()
    assert float(last[0]) < float(last[11]), "the value of an hour ago is nearer than that of 12"
    again = run_ett(small, out=tmp_path)
    assert again["mse_by_step"].tolist() == results["mse_by_step"].tolist()


def test_fits_see_standardised_train_rows_of_their_fold(small):
    run_ett(small)
    frame = load_dataset("synthetic").targets
    ends = [1008 - 168, 1008 - 84, 1008]
    assert [len(X) for _, seed, X in FITS if seed == 0] == ends * 2
    for _, _, X in FITS:
        np.testing.assert_allclose(X.mean(), 0.0, atol=1e-9)
        np.testing.assert_allclose(X.std(ddof=0), 1.0, atol=1e-9)
        assert list(X.columns) == list(frame.columns)
        assert X.index[0] == frame.index[0]


def test_folds_do_not_read_test_rows(small, monkeypatch):
    dataset = load_dataset("synthetic")
    before = run_ett(small)
    dataset.frame.iloc[dataset.splits["test"].start :] = 1e6
    monkeypatch.setattr(_runs, "load_dataset", lambda name, root: dataset)
    after = run_ett(small)
    scores = ["mse", "mae", "validation_mse"]
    pd.testing.assert_frame_equal(before[scores], after[scores])


def test_a_stopped_run_goes_on_where_it_stopped(small, tmp_path):
    path = tmp_path / "synthetic_M_folds.csv"
    whole = run_ett(small, out=tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-3]))
    FITS.clear()
    again = run_ett(small, out=tmp_path)
    assert len(FITS) == 3
    assert len(path.read_text().splitlines()) == len(lines)
    same = [name for name in whole.columns if name != "train_seconds"]
    pd.testing.assert_frame_equal(again[same], whole[same])
    FITS.clear()
    run_ett(small, out=tmp_path)
    assert FITS == []


def test_rows_written_before_a_failure_are_kept(tmp_path):
    options = {"dataset": "synthetic", "horizons": (24,), "attention": ("mlr",), "seeds": 1}
    with pytest.raises(ValueError, match="the fit failed"):
        run_ett(EttConfig(**options, options={"fail": True}), out=tmp_path)
    assert len((tmp_path / "synthetic_M_folds.csv").read_text().splitlines()) == 1 + 3 * 4
    assert len(run_ett(EttConfig(**options), out=tmp_path)) == 3 * 5


def test_other_settings_are_other_runs(tmp_path):
    base = {"dataset": "synthetic", "horizons": (24,), "attention": ("mlr",), "seeds": 1}
    first = run_ett(EttConfig(**base), out=tmp_path)
    second = run_ett(EttConfig(**base, options={"max_steps": 9}), out=tmp_path)
    assert len(FITS) == 6
    hashes = [
        set(each[each["model"] == "MLRForecaster"]["config_hash"]) for each in (first, second)
    ]
    assert len(hashes[0] | hashes[1]) == 2
    # Seeds, attentions and horizons are columns of their own and share the hash of the settings.
    other = run_ett(EttConfig(dataset="synthetic", horizons=(24, 48), seeds=2))
    assert set(other[other["model"] == "MLRForecaster"]["config_hash"]) == hashes[0]


def test_a_final_run_is_logged_before_it_scores(tmp_path):
    base = {"dataset": "synthetic", "horizons": (24,), "attention": ("mlr",), "seeds": 1}
    with pytest.raises(ValueError, match="`out` must name a folder where `final`"):
        run_ett(EttConfig(**base, final=True))
    with pytest.raises(ValueError, match="the fit failed"):
        run_ett(EttConfig(**base, final=True, options={"fail": True}), out=tmp_path)
    results = run_ett(EttConfig(**base, final=True), out=tmp_path)
    run_ett(EttConfig(**base, final=True), out=tmp_path)
    entries = [json.loads(line) for line in (tmp_path / "final_runs.log").read_text().splitlines()]
    assert len(entries) == 2, "a run with nothing left to do scores nothing and is not logged"
    assert entries[1]["config_hash"] in set(results["config_hash"])
    assert entries[1]["command"].endswith(f"--seeds 1 --final --out {tmp_path.name}")
    assert entries[1] | {"time": 0, "config_hash": 0, "command": 0} == {
        "time": 0,
        "config_hash": 0,
        "command": 0,
        "dataset": "synthetic",
        "target": "M",
        "horizons": [24],
        "attention": ["mlr"],
        "seeds": 1,
        "runs": 1,
    }


def test_final_scores_test_rows_and_the_validation_slice_with_one_model(tmp_path):
    base = {"dataset": "synthetic", "horizons": (24,), "attention": ("mlr",), "seeds": 1}
    final = run_ett(EttConfig(**base, final=True), out=tmp_path)
    folds = run_ett(EttConfig(**base))
    assert set(final["split"]) == {"test"}
    last = folds[folds["split"] == "fold3"]
    np.testing.assert_allclose(final["validation_mse"], last["mse"], atol=1e-12)
    assert (final["mse"] != final["validation_mse"]).all()
    assert [len(X) for _, _, X in FITS][:1] == [1008]


def test_one_target(tmp_path):
    config = EttConfig(
        dataset="synthetic", horizons=(24,), attention=("mlr",), seeds=1, target="load_2"
    )
    results = run_ett(config, out=tmp_path)
    assert set(results["target"]) == {"load_2"}
    assert (tmp_path / "synthetic_load_2_folds.csv").exists()
    assert list(FITS[0][2].columns) == ["load_2"]
    with pytest.raises(ValueError, match=r"`target` must be a column of synthetic.*got 'OT'"):
        run_ett(EttConfig(dataset="synthetic", horizons=(24,), target="OT"))


@pytest.mark.parametrize(("final", "most"), [(False, 840), (True, 1008)])
def test_a_context_longer_than_the_rows_is_named_before_any_work(tmp_path, final, most):
    base = {"dataset": "synthetic", "horizons": (24,), "seeds": 1, "final": final}
    config = EttConfig(**base, options={"context_length": most + 1})
    with pytest.raises(
        ValueError, match=f"`context_length` must be at most {most}.*got {most + 1}"
    ):
        run_ett(config, out=tmp_path / "out")
    assert FITS == []
    assert list(tmp_path.iterdir()) == []
    run_ett(EttConfig(**base, options={"context_length": most}), out=tmp_path)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"width": "abc"},
        {"dropout": 2.0},
        {"learning_rate": -1},
        {"loss": "mas"},
        {"context_length": "a"},
    ],
    ids=str,
)
def test_a_bad_option_is_no_run(tmp_path, monkeypatch, final, options):
    monkeypatch.setattr(_runs, "MLRForecaster", MLRForecaster)
    base = {"dataset": "synthetic", "horizons": (24,), "attention": ("mlr",), "seeds": 1}
    with pytest.raises(ValueError, match=f"'{next(iter(options))}' parameter"):
        run_ett(EttConfig(**base, final=final, options=options), out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_torn_last_line_is_run_again(small, tmp_path, caplog):
    path = tmp_path / "synthetic_M_folds.csv"
    whole = run_ett(small, out=tmp_path)
    text = path.read_bytes()
    FITS.clear()
    for cut in (1, 40):
        path.write_bytes(text[:-cut])
        again = run_ett(small, out=tmp_path)
        assert path.read_bytes().count(b"\n") == text.count(b"\n")
        same = [name for name in whole.columns if name != "train_seconds"]
        pd.testing.assert_frame_equal(again[same], whole[same])
    assert len(FITS) == 2
    assert caplog.text.count("Line 37 of synthetic_M_folds.csv was cut off") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizons": ()}, "`horizons` must hold distinct entries, at least one"),
        ({"horizons": (96, 96)}, "`horizons` must hold distinct entries"),
        ({"horizons": (0,)}, "`horizons` must be at least 1, got 0"),
        ({"attention": ()}, "`attention` must hold distinct entries"),
        ({"attention": ("mlr", "mrl")}, r"`attention` must hold names of .*got \['mrl'\]"),
        ({"options": {"seed": 3}}, r"`options` must not hold \['seed'\]"),
    ],
)
def test_config_errors_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        EttConfig(**arguments)


def test_run_errors_name_the_argument(small):
    with pytest.raises(ValueError, match="`jobs` must be at least 1, got 0"):
        run_ett(small, jobs=0)
    with pytest.raises(ValueError, match="`horizons` must be at most 168"):
        run_ett(EttConfig(dataset="synthetic", horizons=(169,)))
    assert FITS == []


def test_options_that_do_not_fit_each_other_are_refused_before_the_log(tmp_path, monkeypatch):
    """Heads that do not divide the width: nothing is scored, logged or written."""
    monkeypatch.setattr(_runs, "MLRForecaster", MLRForecaster)
    config = EttConfig(
        dataset="synthetic",
        horizons=(24,),
        attention=("mlr",),
        seeds=1,
        final=True,
        options={"width": 10, "num_heads": 4},
    )
    with pytest.raises(ValueError, match="num_heads"):
        run_ett(config, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


class TestAttentions:
    """What is compared: any score by its name, mixes, and options that only some of them have."""

    @pytest.fixture
    def built(self, monkeypatch):
        """What the forecaster of each run is built with, which only checks itself."""
        seen = {}

        class Recorder(MLRForecaster):
            def check_parameters(self):
                super().check_parameters()
                seen[self.attention] = self.get_params()
                if len(seen) == 3:
                    raise StopIteration

        monkeypatch.setattr(_runs, "MLRForecaster", Recorder)
        return seen

    def check(self, attention, **options):
        config = EttConfig(
            dataset="synthetic", horizons=(24,), attention=attention, seeds=1, options=options
        )
        with pytest.raises(StopIteration):
            run_ett(config)

    def test_options_go_to_the_attentions_that_have_them(self, built):
        self.check(
            ("mlr", "sliding_window", "standard+mlr_window"),
            ranks=(4, 4),
            attention_options={"window": 3, "qk_norm": True},
            width=16,
            num_heads=2,
        )
        mix = ("standard", "mlr_window")
        assert list(built) == ["mlr", "sliding_window", mix]
        norm = {"qk_norm": True}
        found = {name: (p["ranks"], p["attention_options"]) for name, p in built.items()}
        assert found == {
            "mlr": ((4, 4), norm),
            "sliding_window": (None, {"window": 3, **norm}),
            mix: ((4, 4), {"window": 3, **norm}),
        }

    def test_every_registered_name_can_be_compared(self, built):
        names = list(attentions)
        for start in range(0, len(names), 3):
            built.clear()
            self.check((names + names[:1])[start : start + 3])
            assert set(built) <= set(names)

    def test_without_options_left_there_are_none(self, built):
        self.check(("standard", "bilinear", "mlr_window"), attention_options={"window": 3})
        assert built["standard"]["attention_options"] is None

    @pytest.mark.parametrize(
        ("options", "idle"),
        [
            ({"ranks": (2, 2)}, "ranks"),
            ({"attention_options": {"tensor_rank": 2, "num_kv_heads": 1}}, "tensor_rank"),
        ],
    )
    def test_an_option_that_none_of_them_has_is_refused(self, options, idle):
        words = rf"`options` .*none of \['standard', 'bilinear\+standard'\] has \['{idle}'\]"
        with pytest.raises(ValueError, match=words):
            EttConfig(attention=("standard", "bilinear+standard"), options=options)

    @pytest.mark.parametrize("entry", ["mlr+", "+", "", "mlr+mrl", "mlr standard"])
    def test_mixes_of_unknown_names_are_refused(self, entry):
        with pytest.raises(ValueError, match="`attention` must hold names of"):
            EttConfig(attention=(entry,))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"attention_options": {"windw": 3}}, "no option `windw`"),
            ({"attention_options": {"qk_norm": 3}}, "`options` must fit .*`qk_norm`"),
            ({"attention_options": "window"}, "'attention_options' parameter"),
        ],
    )
    def test_options_that_no_score_can_use_are_no_run(self, tmp_path, monkeypatch, options, words):
        monkeypatch.setattr(_runs, "MLRForecaster", MLRForecaster)
        config = EttConfig(dataset="synthetic", horizons=(24,), options=options)
        with pytest.raises(ValueError, match=words):
            run_ett(config, out=tmp_path / "out")
        assert list(tmp_path.iterdir()) == []

    def test_a_mix_is_one_line_of_the_file_and_is_not_run_again(self, tmp_path):
        config = EttConfig(
            dataset="synthetic", horizons=(24,), attention=("mlr", "standard+mlr"), seeds=1
        )
        results = run_ett(config, out=tmp_path)
        assert {"mlr", "standard+mlr"} < set(results["attention"])
        assert ("standard", "mlr") in {attention for attention, _, _ in FITS}
        fits = len(FITS)
        run_ett(config, out=tmp_path)
        assert len(FITS) == fits

    def test_the_runs_on_file_have_the_defaults_of_today(self, monkeypatch):
        """Where a default changes, all of them must be run again."""
        monkeypatch.setattr(_runs, "MLRForecaster", MLRForecaster)

        def of(**options):
            task = _runs.Task(
                dataset="ETTh1", target=None, final=True, root=None, options=options, command=""
            )
            run = _runs.Run(split=None, horizon=96, model=_runs.MODEL, attention="mlr", seed=0)
            return _runs._hash(task, run)

        on_file = pd.read_csv(RESULTS / "ETTh1_M_final.csv")
        fits = on_file[on_file["model"] == _runs.MODEL]
        assert set(fits["config_hash"]) == {of()}
        others = {
            of(positions="rotary"),
            of(parametrization="mup"),
            of(attention_options={"qk_norm": True}),
            of(attention_options={"qk_norm": False}),
        }
        assert len(others - {of()}) == 4
