"""Models on a hub: as they were when they come back, and errors that say what was tried."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import HubError, MissingDependencyError, ModelFileError
from mlrforecast.estimators import _document
from tests.estimators.frames import TINY, wide
from tests.integrations.hub_stub import CREATED, Hub, running_hub

client = pytest.importorskip("huggingface_hub", reason="the extra `hub` is not installed")
constants = pytest.importorskip("huggingface_hub.constants")

pytestmark = [
    # The client's own: how it uploads, and what it leaves to the collector after an error.
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning"),
]
REPO = "somebody/model"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def fitted() -> MLRForecaster:
    return MLRForecaster(**TINY).fit(wide())


@pytest.fixture(scope="module")
def other() -> MLRForecaster:
    return MLRForecaster(**TINY, seed=1).fit(wide())


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A server that the client asks, with an empty folder of downloads and no token."""
    with running_hub() as server:
        set_endpoint(monkeypatch, server.url)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


def set_endpoint(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Change what the client read from HF_ENDPOINT when it was imported."""
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


def kinds(files: dict[str, bytes]) -> list[str]:
    return sorted(name.partition("-")[0] for name in files if name not in CREATED)


class TestThereAndBack:
    def test_weights_and_forecasts_are_equal_to_the_bit(
        self, hub: Hub, fitted: MLRForecaster, tmp_path: Path
    ) -> None:
        url = fitted.push_to_hub(REPO, token="hf_secret", private=True, commit_message="First")
        assert url == f"{hub.url}/{REPO}/commit/{hub.repositories[REPO]['main']}"
        assert kinds(hub.files(REPO)) == ["README.md", "config.json", "model"]
        assert hub.messages == ["First"]
        assert hub.private == {REPO: True}
        assert hub.tokens == {"Bearer hf_secret"}
        fitted.save(tmp_path / "model")
        saved = {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}
        assert hub.files(REPO) == CREATED | saved
        loaded = MLRForecaster.from_hub(REPO)
        for name, value in fitted.model_.state_dict().items():
            assert torch.equal(value, loaded.model_.state_dict()[name])
        assert loaded.predict(wide()).equals(fitted.predict())
        assert loaded.get_params() == fitted.get_params()

    def test_each_branch_has_its_own_model(
        self, hub: Hub, fitted: MLRForecaster, other: MLRForecaster, tmp_path: Path
    ) -> None:
        first = fitted.push_to_hub(REPO).rpartition("/")[2]
        other.push_to_hub(REPO, branch="next")
        cache = tmp_path / "elsewhere"
        for revision, expected in ((None, fitted), ("main", fitted), ("next", other)):
            loaded = MLRForecaster.from_hub(REPO, revision=revision, cache_dir=cache)
            assert loaded.predict(wide()).equals(expected.predict())
        assert not (tmp_path / "cache").exists()
        # A commit stays what it was.
        other.push_to_hub(REPO)
        assert MLRForecaster.from_hub(REPO).predict(wide()).equals(other.predict())
        old = MLRForecaster.from_hub(REPO, revision=first)
        assert old.predict(wide()).equals(fitted.predict())

    def test_a_context_goes_only_if_asked_and_not_for_longer(
        self, hub: Hub, fitted: MLRForecaster
    ) -> None:
        fitted.push_to_hub(REPO, with_context=True)
        assert "context" in kinds(hub.files(REPO))
        assert MLRForecaster.from_hub(REPO).predict().equals(fitted.predict())
        fitted.push_to_hub(REPO)
        assert kinds(hub.files(REPO)) == ["README.md", "config.json", "model"]
        assert ".gitattributes" in hub.files(REPO)
        with pytest.raises(ValueError, match="`X` is needed"):
            MLRForecaster.from_hub(REPO).predict()

    def test_an_edited_card_stays(
        self, hub: Hub, fitted: MLRForecaster, other: MLRForecaster
    ) -> None:
        fitted.push_to_hub(REPO)
        first = hub.files(REPO)["README.md"]
        other.push_to_hub(REPO)
        assert hub.files(REPO)["README.md"] != first
        edited = first + b"Trained on the sales of three shops.\n"
        hub.commit(REPO, "main", hub.files(REPO) | {"README.md": edited, "notes.txt": b"x"})
        fitted.push_to_hub(REPO)
        assert hub.files(REPO)["README.md"] == edited
        assert hub.files(REPO)["notes.txt"] == b"x"
        assert MLRForecaster.from_hub(REPO).predict(wide()).equals(fitted.predict())

    def test_a_custom_backbone_is_given_again(self, hub: Hub, seeded: None) -> None:
        class Plain(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.map = nn.Linear(8, 8)

            def forward(self, tokens: torch.Tensor, key_mask: object) -> torch.Tensor:
                return torch.as_tensor(self.map(tokens))

        fitted = MLRForecaster(**TINY, backbone=Plain()).fit(wide())
        fitted.push_to_hub(REPO)
        with pytest.raises(ModelFileError, match="custom backbone 'Plain'"):
            MLRForecaster.from_hub(REPO)
        loaded = MLRForecaster.from_hub(REPO, backbone=Plain())
        assert loaded.predict(wide()).equals(fitted.predict())

    def test_a_local_folder_of_that_name_is_not_read(
        self,
        hub: Hub,
        fitted: MLRForecaster,
        other: MLRForecaster,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        other.save(REPO)
        fitted.push_to_hub(REPO)
        assert MLRForecaster.from_hub(REPO).predict(wide()).equals(fitted.predict())

    def test_what_was_downloaded_with_its_surroundings_can_be_saved_over(
        self, hub: Hub, fitted: MLRForecaster, other: MLRForecaster, tmp_path: Path
    ) -> None:
        fitted.push_to_hub(REPO)
        client.snapshot_download(REPO, local_dir=tmp_path / "copy")
        assert {".cache", ".gitattributes"} <= set(os.listdir(tmp_path / "copy"))
        assert MLRForecaster.load(tmp_path / "copy").predict(wide()).equals(fitted.predict())
        other.save(tmp_path / "copy")
        assert MLRForecaster.load(tmp_path / "copy").predict(wide()).equals(other.predict())

    def test_nothing_is_printed(
        self, hub: Hub, fitted: MLRForecaster, capfd: pytest.CaptureFixture[str]
    ) -> None:
        fitted.push_to_hub(REPO)
        MLRForecaster.from_hub(REPO)
        assert capfd.readouterr() == ("", "")
        assert not client.utils.are_progress_bars_disabled()


class TestErrors:
    def test_a_repository_that_is_not_there(self, hub: Hub, tmp_path: Path) -> None:
        with pytest.raises(HubError, match=r"The model 'a/b', revision 'main', cannot") as caught:
            MLRForecaster.from_hub("a/b")
        assert hub.url in str(caught.value)
        assert str(tmp_path / "cache") in str(caught.value)
        assert isinstance(caught.value.__cause__, client.errors.RepositoryNotFoundError)

    def test_a_revision_that_is_not_there(self, hub: Hub, fitted: MLRForecaster) -> None:
        fitted.push_to_hub(REPO)
        with pytest.raises(HubError, match=r"'somebody/model', revision 'v2', cannot") as caught:
            MLRForecaster.from_hub(REPO, revision="v2")
        assert isinstance(caught.value.__cause__, client.errors.RevisionNotFoundError)

    @pytest.mark.parametrize("name", ["a/b/c", "", "a b", "../x"])
    def test_names_of_no_repository(self, hub: Hub, fitted: MLRForecaster, name: str) -> None:
        for call in (MLRForecaster.from_hub, fitted.push_to_hub):
            with pytest.raises(ValueError, match="`repo_id` is no name of a repository"):
                call(name)
        assert not [asked for asked in hub.requests if "models" in asked or "repos" in asked]

    def test_a_repository_without_a_model(self, hub: Hub) -> None:
        client.HfApi().create_repo(REPO)
        with pytest.raises(HubError, match=r"'somebody/model', revision 'main', holds no model"):
            MLRForecaster.from_hub(REPO)

    @pytest.mark.parametrize("status", [401, 403, 501])
    def test_a_hub_that_refuses(self, hub: Hub, fitted: MLRForecaster, status: int) -> None:
        hub.status = status
        with pytest.raises(HubError, match=r"cannot be written to 'somebody/model', branch 'main'"):
            fitted.push_to_hub(REPO)
        with pytest.raises(HubError, match=f"{status}|cannot be had"):
            MLRForecaster.from_hub(REPO)

    def test_no_network(
        self, hub: Hub, fitted: MLRForecaster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fitted.push_to_hub(REPO)
        MLRForecaster.from_hub(REPO)
        set_endpoint(monkeypatch, NOWHERE)
        # What is there already is enough.
        assert MLRForecaster.from_hub(REPO).predict(wide()).equals(fitted.predict())
        with pytest.raises(HubError, match=f"asked {NOWHERE}"):
            MLRForecaster.from_hub("a/b")
        with pytest.raises(HubError, match=f"cannot be written to .*asked {NOWHERE}"):
            fitted.push_to_hub(REPO)

    @pytest.mark.parametrize("how", ["argument", "environment"])
    def test_offline(
        self, hub: Hub, fitted: MLRForecaster, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        fitted.push_to_hub(REPO)
        MLRForecaster.from_hub(REPO)
        if how == "environment":
            monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        hub.requests.clear()
        only = how == "argument"
        loaded = MLRForecaster.from_hub(REPO, local_files_only=only)
        assert loaded.predict(wide()).equals(fitted.predict())
        with pytest.raises(HubError, match=r"'a/b'.*looked in") as caught:
            MLRForecaster.from_hub("a/b", local_files_only=only)
        assert ("HF_HUB_OFFLINE is set" in str(caught.value)) is not only
        assert hub.requests == []

    def test_a_model_that_cannot_be_saved_leaves_nothing_there(
        self, hub: Hub, fitted: MLRForecaster
    ) -> None:
        fitted.push_to_hub(REPO)
        loaded = MLRForecaster.from_hub(REPO)
        hub.requests.clear()
        with pytest.raises(ValueError, match="`with_context` needs a context"):
            loaded.push_to_hub("somebody/another", with_context=True)
        with pytest.raises(NotFittedError):
            MLRForecaster(**TINY).push_to_hub("somebody/another")
        assert hub.requests == []

    def test_the_extra_is_named(
        self, fitted: MLRForecaster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        for call in (MLRForecaster.from_hub, fitted.push_to_hub):
            with pytest.raises(MissingDependencyError, match=r"pip install 'mlrforecast\[hub\]'"):
                call(REPO)


class TestHarm:
    """What is sent is not what was uploaded: refused, and good again when the server is."""

    def test_cut_short(
        self, hub: Hub, fitted: MLRForecaster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fitted.push_to_hub(REPO)
        # The client waits between its attempts.
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        hub.harm = lambda name, content: content[: len(content) // 2]
        with pytest.raises(HubError, match="cannot be had"):
            MLRForecaster.from_hub(REPO)
        hub.harm = None
        assert MLRForecaster.from_hub(REPO).predict(wide()).equals(fitted.predict())

    @pytest.mark.parametrize("name", ["config.json", "model"])
    def test_altered(self, hub: Hub, fitted: MLRForecaster, tmp_path: Path, name: str) -> None:
        fitted.push_to_hub(REPO)

        def flip(file: str, content: bytes) -> bytes:
            altered = bytearray(content)
            altered[-20] ^= 1
            return bytes(altered) if file.startswith(name) else content

        hub.harm = flip
        with pytest.raises(ModelFileError, match=rf"{name}.* (altered|no description)"):
            MLRForecaster.from_hub(REPO)
        hub.harm = None
        loaded = MLRForecaster.from_hub(REPO, cache_dir=tmp_path / "fresh")
        assert loaded.predict(wide()).equals(fitted.predict())

    @pytest.mark.parametrize(
        "config",
        [b"[1, 2]", b"{", b"[" * 10**5, b'{"folder": "/", "_from_pretrained": 1}', b"\xff"],
        ids=["list", "cut", "deep", "arguments", "binary"],
    )
    def test_hostile_configurations(self, hub: Hub, fitted: MLRForecaster, config: bytes) -> None:
        fitted.push_to_hub(REPO)
        hub.commit(REPO, "main", hub.files(REPO) | {"config.json": config})
        with pytest.raises(ModelFileError, match=r"config\.json"):
            MLRForecaster.from_hub(REPO)

    def test_only_files_of_a_model_are_downloaded(
        self, hub: Hub, fitted: MLRForecaster, tmp_path: Path
    ) -> None:
        fitted.push_to_hub(REPO)
        more = {"model.pkl": b"x" * 10, "setup.py": b"1 / 0", "deep/config.json": b"{}"}
        hub.commit(REPO, "main", hub.files(REPO) | more)
        MLRForecaster.from_hub(REPO)
        found = {file.name for file in (tmp_path / "cache").rglob("snapshots/*/*")}
        assert not found & {"model.pkl", "setup.py", "deep"}


def test_the_card_is_read_as_the_client_reads_it(fitted: MLRForecaster, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    card = client.ModelCard.load(tmp_path / "model" / "README.md")
    assert card.data.to_dict() == {
        "library_name": _document.LIBRARY,
        "pipeline_tag": "time-series-forecasting",
        "tags": ["time-series-forecasting"],
    }


def test_a_fresh_process_needs_the_address_only(
    hub: Hub, fitted: MLRForecaster, tmp_path: Path
) -> None:
    fitted.push_to_hub(REPO)
    program = (
        "from mlrforecast import MLRForecaster; from tests.estimators.frames import wide; "
        f"print(MLRForecaster.from_hub({REPO!r}).predict(wide()).to_numpy().tobytes().hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    found = np.frombuffer(bytes.fromhex(done.stdout), dtype=np.float64)
    np.testing.assert_array_equal(found, fitted.predict().to_numpy().ravel())
