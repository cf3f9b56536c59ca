"""Synthetic series: seeded, the same in any number of processes, and as they were published."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlrforecast.pretraining import kernel_synth, read_arrow, tsmixup, write_arrow
from mlrforecast.pretraining.kernel_synth import _bank, _composed, _root


def test_series_of_kernels_depend_on_the_seed_and_their_number_alone():
    series = kernel_synth(6, length=96, seed=3)
    assert series.shape == (6, 96)
    assert series.dtype == np.float32
    assert np.isfinite(series).all()
    np.testing.assert_array_equal(series[:2], kernel_synth(2, length=96, seed=3))
    np.testing.assert_allclose(series, kernel_synth(6, length=96, seed=3, num_workers=2), rtol=1e-4)
    assert not np.allclose(series, kernel_synth(6, length=96, seed=4))
    assert len(np.unique(series.std(axis=1))) == 6


def test_every_kernel_and_composition_is_a_covariance():
    steps = np.linspace(0, 1, 48)
    for kernel in _bank(48):
        covariance = kernel(steps)
        np.testing.assert_allclose(covariance, covariance.T)
        assert np.linalg.eigvalsh(covariance).min() > -1e-9 * np.diag(covariance).max()
    rng = np.random.default_rng(0)
    for _ in range(20):
        covariance = _composed(rng, 48, 5)
        root = _root(covariance)
        size = np.abs(covariance).max()
        np.testing.assert_allclose(root @ root.T, covariance, atol=1e-6 * size)


def test_the_paths_have_the_covariance_of_their_kernel():
    """Of the periodic kernel of 24 steps, a path repeats itself after a day."""
    steps = np.linspace(0, 1, 97)[:96]
    periodic = next(k for k in _bank(96) if k(steps)[0, 24] > 1 - 1e-9 and k(steps)[0, 12] < 0.2)
    path = _root(periodic(steps)) @ np.random.default_rng(0).standard_normal(96)
    np.testing.assert_allclose(path[24:], path[:-24], atol=1e-3)
    assert path.std() > 0.1


def test_mixtures_are_convex_combinations_of_scaled_pieces():
    ones = [np.full(200, 7.0)]
    for mixed in tsmixup([ones, [np.full(150, -3.0)]], 20, seed=1):
        # 1 and -1 are what constants become.
        assert np.ptp(mixed) < 1e-6
        assert -1 - 1e-6 <= mixed[0] <= 1 + 1e-6
        assert 128 <= len(mixed) <= 200
    alone = tsmixup([[np.arange(1.0, 401.0)]], 5, max_series=1, min_length=10, max_length=50)
    for mixed in alone:
        assert np.abs(mixed).mean() == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose(np.diff(mixed, 2), 0, atol=1e-5)
    values = np.array([m[0] for m in tsmixup([ones, [np.full(200, -1.0)]], 2000, max_series=2)])
    mixed = values[np.abs(values) < 1 - 1e-6]
    # A quarter of them is of one series each of both sets, with weights of variance 1/16.
    assert len(mixed) / len(values) == pytest.approx(0.25, abs=0.03)
    assert mixed.std() == pytest.approx(0.5, abs=0.03)


def test_mixtures_depend_on_the_seed_alone_and_missing_values_stay():
    data = [
        [np.random.default_rng(0).normal(size=300)],
        [np.where(np.arange(200) % 9, 1.0, np.nan)],
    ]
    first = tsmixup(data, 8, seed=5)
    for one, other in zip(first, tsmixup(data, 8, seed=5, num_workers=2), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(first, tsmixup(data, 4, seed=5), strict=False):
        np.testing.assert_array_equal(one, other)
    assert any(np.isnan(mixed).any() for mixed in first)
    assert all(np.isfinite(mixed).any() for mixed in first)
    assert all(np.isfinite(m).all() for m in tsmixup([[np.zeros(200)]], 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kernel_synth(0), "`num_series` must be at least 1, got 0"),
        (lambda: kernel_synth(1, length=1), "`length` must be at least 2, got 1"),
        (lambda: kernel_synth(1, seed=-1), "`seed` must be at least 0, got -1"),
        (lambda: tsmixup([[np.ones(9)]], 1), r"`datasets\[0\]` must hold .* have at most 9"),
        (lambda: tsmixup([], 1), "`datasets` must hold at least one"),
        (lambda: tsmixup([[np.ones(200)]], 1, alpha=0), "`alpha` must be above 0, got 0"),
        (lambda: tsmixup([[np.ones(200)]], 1, max_length=5), "`max_length` must be at least 128"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_arrow_files_hold_the_series_and_gluonts_reads_them(tmp_path):
    path = tmp_path / "series.arrow"
    series = [np.array([1.0, np.nan, 3.0]), np.arange(5), np.array([2.5])]
    write_arrow(path, series)
    for found, given in zip(read_arrow(str(path)), series, strict=True):
        np.testing.assert_array_equal(found, np.asarray(given, np.float32))
    common = pytest.importorskip("gluonts.dataset.common")
    entries = list(common.FileDataset(Path(path), freq="h"))
    assert [len(entry["target"]) for entry in entries] == [3, 5, 1]


def test_arrow_files_of_gluonts_are_read(tmp_path):
    pytest.importorskip("gluonts")
    from gluonts.dataset.arrow import ArrowWriter

    start = np.datetime64("2020-01-01 00:00", "s")
    rows = [{"start": start, "target": np.arange(n, dtype=np.float32)} for n in (4, 2)]
    ArrowWriter(compression="lz4").write_to_file(rows, path=tmp_path / "theirs.arrow")
    assert [row.tolist() for row in read_arrow(tmp_path / "theirs.arrow")] == [[0, 1, 2, 3], [0, 1]]


def test_what_is_no_file_of_series_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_arrow(tmp_path / "none.arrow")
    (tmp_path / "text.arrow").write_text("not arrow")
    with pytest.raises(ValueError, match="must be an Arrow file with lists of numbers"):
        read_arrow(tmp_path / "text.arrow")
    with pytest.raises(ValueError, match=r"`series\[1\]` must be a series of shape \(T,\)"):
        write_arrow(tmp_path / "x.arrow", [np.ones(2), np.ones((2, 2))])
    with pytest.raises(ValueError, match=r"`series\[0\]` must be finite .* float32, got 1e\+300"):
        write_arrow(tmp_path / "x.arrow", [[1e300]])
    assert not (tmp_path / "x.arrow").exists()
    with pytest.raises(FileNotFoundError, match="`path` must be a file in a folder that exists"):
        write_arrow(tmp_path / "none" / "x.arrow", [np.ones(2)])


@pytest.mark.parametrize("rows", [[[[1.0]]], [["a"]], [1.0], [{"a": 1}]])
def test_a_column_of_something_else_is_told(tmp_path, rows):
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"target": rows})
    with arrow.ipc.new_file(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ValueError, match=r"x\.arrow' must be an Arrow file with lists of numbers"):
        read_arrow(tmp_path / "x.arrow")


def test_processes_that_draw_need_no_torch():
    code = (
        "import sys; from mlrforecast.pretraining import kernel_synth, read_arrow, tsmixup; "
        "print([name for name in ('torch', 'lightning', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("datasets", "options", "error", "message"),
    [
        (np.ones((2, 200)), {}, ValueError, r"`datasets\[0\]\[0\]` must be a series of shape"),
        (["k.arrow"], {}, TypeError, r"`datasets\[0\]` must be a sequence, got 'k\.arrow'"),
        ([["k"]], {}, TypeError, r"`datasets\[0\]\[0\]` must be a series of real numbers"),
        ([[np.full(200, np.inf)]], {}, ValueError, r"must be finite or NaN .* inf at step 0"),
        ([[np.ones(200)]], {"alpha": np.inf}, ValueError, "`alpha` must be finite, got inf"),
        ([[np.ones(200)]], {"num_workers": 0}, ValueError, "`num_workers` must be at least 1, or"),
    ],
)
def test_what_cannot_be_mixed_is_told(datasets, options, error, message):
    with pytest.raises(error, match=message):
        tsmixup(datasets, 2, **options)
