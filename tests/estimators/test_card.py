"""The card of a saved model: true, whole, without data, and never written over an edited one."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from mlrforecast import MLRForecaster, __version__
from mlrforecast.estimators._card import CARD, is_edited
from mlrforecast.estimators._summary import summarise
from tests.estimators.frames import TINY, long, wide

EDITED = b"# Mine\n"


def card_of(fitted: MLRForecaster, folder: Path, **options: Any) -> str:
    fitted.save(folder, **options)
    return (folder / CARD).read_text(encoding="utf-8")


@pytest.fixture
def saved(on_wide: MLRForecaster, tmp_path: Path) -> Path:
    on_wide.save(tmp_path / "model")
    return tmp_path / "model"


class TestContent:
    def test_front_matter_of_the_hub(self, on_wide: MLRForecaster, tmp_path: Path) -> None:
        front = card_of(on_wide, tmp_path / "m").split("---\n")[1]
        assert front.splitlines() == [
            "library_name: mlrforecast",
            "pipeline_tag: time-series-forecasting",
            "tags:",
            "- time-series-forecasting",
        ]

    def test_what_it_is(self, on_wide: MLRForecaster, tmp_path: Path) -> None:
        card = card_of(on_wide, tmp_path / "m")
        assert "# Forecaster of the next 6 steps\n" in card
        assert f"mlrforecast {__version__}." in card
        sections = summarise(on_wide).sections
        for name in ("attention", "levels", "parameters", "tokens"):
            for line in sections["network"][name].splitlines():
                assert line in card
        for fact in (r"steps +3", r"learning rate +0\.001", r"batch size +16", r"seed +0"):
            assert re.search(rf"^  {fact}$", card, re.MULTILINE)
        assert "loss           quantile, levels 0.1, 0.2" in card

    def test_calibration(self, tmp_path: Path) -> None:
        fitted = MLRForecaster(**TINY).fit(wide()).calibrate(wide(300), refit=False)
        card = card_of(fitted, tmp_path / "m")
        table = fitted.calibration_.coverage
        assert re.search(r"method +split$", card, re.MULTILINE)
        before, after = (f"{table.loc[0.8, name]:.0%} {name}" for name in ("before", "after"))
        assert f"80% nominal: {before}, {after}" in card
        assert "calibration-*.safetensors" in card
        assert "time stamps or item ids" in card
        rolling = fitted.calibrate(wide(300), method="rolling", refit=False)
        assert "**the time stamp at which each was known**" in card_of(rolling, tmp_path / "m")

    def test_names_are_those_of_the_parameters(self, tmp_path: Path) -> None:
        frame = wide(columns=("sales", "price", "secret"))
        parameters = {"target": "sales", "known_covariates": ["price"]}
        card = card_of(MLRForecaster(**TINY, **parameters).fit(frame), tmp_path / "m")
        assert re.search(r"target +sales$", card, re.MULTILINE)
        assert re.search(r"known covariates +price$", card, re.MULTILINE)
        assert "predict(frame, future=future, quantile_levels=[0.1, 0.9])" in card
        assert "mean and spread of numbers" in card
        assert "secret" not in card

    @pytest.mark.parametrize("with_context", [False, True])
    def test_no_data(self, tmp_path: Path, with_context: bool) -> None:
        frame = long(("secret", "hidden"), (80, 60))
        frame.iloc[-3:, -1] = 123456.75
        fitted = MLRForecaster(**TINY).fit(frame)
        card = card_of(fitted, tmp_path / "m", with_context=with_context)
        assert not re.search("secret|hidden|123456|2024", card)
        assert ("**They hold training data**" in card) == with_context

    def test_names_cannot_leave_their_block(self, tmp_path: Path) -> None:
        name = "a\n```\n# Not a heading\r~~~\n````"
        fitted = MLRForecaster(**TINY, target=name).fit(wide(columns=(name, "b")))
        card = card_of(fitted, tmp_path / "m")
        fence = re.search(r"^(`+)text$", card, re.MULTILINE)
        assert fence is not None
        assert len(fence[1]) == 5
        assert card.count(fence[1]) == 2

    @pytest.mark.parametrize("with_context", [False, True])
    def test_its_program_runs(
        self,
        on_wide: MLRForecaster,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        with_context: bool,
    ) -> None:
        folder = tmp_path / "path/to/this/folder"
        (program,) = re.findall(
            r"```python\n(.*?)```", card_of(on_wide, folder, with_context=with_context), re.DOTALL
        )
        monkeypatch.chdir(tmp_path)
        names: dict[str, Any] = {"frame": wide()}
        exec(program, names)
        expected = on_wide.predict(quantile_levels=[0.1, 0.9])
        assert names["forecast"].equals(expected)

    def test_a_point_forecast_has_no_levels(self, tmp_path: Path) -> None:
        fitted = MLRForecaster(**TINY | {"prediction_length": 1}, loss="mse").fit(wide())
        card = card_of(fitted, tmp_path / "m")
        assert "forecaster.predict(frame)\n" in card
        assert "# Forecaster of the next step\n" in card


class TestEdits:
    def test_the_card_follows_the_model(self, on_long: MLRForecaster, saved: Path) -> None:
        before = (saved / CARD).read_bytes()
        on_long.save(saved, with_context=True)
        assert (saved / CARD).read_bytes() != before
        assert not is_edited((saved / CARD).read_bytes())

    @pytest.mark.parametrize(
        "edit",
        [
            lambda card: card + b"One more line.\n",
            lambda card: card.replace(b"library_name", b"license: mit\nlibrary_name"),
            lambda card: card.replace(b"\n", b"\r\n"),
            lambda card: EDITED,
            lambda card: b"",
            lambda card: card[:-1],
        ],
        ids=["longer", "front", "line ends", "new", "empty", "cut"],
    )
    def test_an_edited_card_stays(self, on_long: MLRForecaster, saved: Path, edit: Any) -> None:
        edited = edit((saved / CARD).read_bytes())
        (saved / CARD).write_bytes(edited)
        for _ in range(2):
            on_long.save(saved)
            assert (saved / CARD).read_bytes() == edited
        assert MLRForecaster.load(saved).predict(long()).equals(on_long.predict())

    def test_a_model_loads_without_it(self, on_wide: MLRForecaster, saved: Path) -> None:
        (saved / CARD).unlink()
        assert MLRForecaster.load(saved).predict(wide()).equals(on_wide.predict())
        on_wide.save(saved)
        assert (saved / CARD).exists()

    @pytest.mark.parametrize("what", ["folder", "pipe", "link to nothing", "link"])
    def test_what_is_no_file_is_left_alone(
        self, on_long: MLRForecaster, saved: Path, tmp_path: Path, what: str
    ) -> None:
        card, elsewhere = saved / CARD, tmp_path / "notes.md"
        card.unlink()
        if what == "folder":
            card.mkdir()
        elif what == "pipe":
            os.mkfifo(card)
        else:
            card.symlink_to(elsewhere)
        if what == "link":
            elsewhere.write_bytes(EDITED)
        on_long.save(saved)
        assert MLRForecaster.load(saved).predict(long()).equals(on_long.predict())
        assert os.path.lexists(card)
        assert elsewhere.exists() == (what == "link")

    @pytest.mark.parametrize("name", [".gitattributes", ".cache", ".git"])
    def test_what_a_hub_leaves_stays(self, on_long: MLRForecaster, saved: Path, name: str) -> None:
        if name == ".gitattributes":
            (saved / name).write_text("x")
        else:
            (saved / name / "deep").mkdir(parents=True)
        on_long.save(saved)
        assert (saved / name).exists()
        assert MLRForecaster.load(saved).predict(long()).equals(on_long.predict())

    @pytest.mark.parametrize("name", [CARD, ".gitattributes", ".cache"])
    def test_alone_they_are_no_model(
        self, on_wide: MLRForecaster, tmp_path: Path, name: str
    ) -> None:
        (tmp_path / name).write_bytes(EDITED)
        with pytest.raises(FileExistsError, match="is no saved forecaster; it is left alone"):
            on_wide.save(tmp_path)
        assert [file.name for file in tmp_path.iterdir()] == [name]

    def test_a_card_that_a_killed_save_left_is_written_over(
        self, on_long: MLRForecaster, saved: Path
    ) -> None:
        (saved / "config.json").unlink()
        on_long.save(saved)
        assert MLRForecaster.load(saved).predict(long()).equals(on_long.predict())


def test_the_same_model_has_the_same_card(on_wide: MLRForecaster, tmp_path: Path) -> None:
    card = card_of(on_wide, tmp_path / "one")
    assert card_of(MLRForecaster.load(tmp_path / "one"), tmp_path / "two") == card
