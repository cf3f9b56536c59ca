"""Folders of saved models on the Hugging Face hub, or on another server that speaks as it does."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from mlrforecast._core.errors import HubError
from mlrforecast._core.optional import import_optional

CARD = "README.md"
TENSORS = "*-????????????.safetensors"
FILES = ("config.json", CARD, TENSORS)


def push_folder(
    folder: Path,
    repo_id: str,
    *,
    is_edited: Callable[[bytes], bool],
    private: bool | None = None,
    branch: str | None = None,
    commit_message: str | None = None,
    token: str | bool | None = None,
) -> str:
    """Upload a saved model; a repository and a branch that are missing are made.

    Parameters
    ----------
    folder : Path
        The model.
    repo_id : str
        Repository on the hub, ``"owner/name"``.
    is_edited : callable
        Whether somebody has edited the card that is on the hub, which then stays there.
    private : bool, optional
        Whether a new repository is private. Default: what its owner has set.
    branch : str, optional
        Default: ``"main"``.
    commit_message : str, optional
        Default: ``"Upload a forecaster"``.
    token : str or bool, optional
        Default: the one that the hub's client has stored.

    Returns
    -------
    str
        Address of the commit.

    Raises
    ------
    ValueError
        If ``repo_id`` is no name of a repository.
    HubError
        If the hub cannot be reached, or refuses.
    """
    hub = _client()
    where = f"{repo_id!r}, branch {branch or 'main'!r}"
    with _explained(hub, f"The model cannot be written to {where}"), _without_bars(hub):
        api = hub.HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        if branch is not None and branch != "main":
            api.create_branch(repo_id, branch=branch, exist_ok=True)
        keeps = _has_card(hub, api, repo_id, branch, token, is_edited)
        commit = _adapter()(folder).push_to_hub(
            repo_id,
            commit_message=commit_message or "Upload a forecaster",
            private=private,
            token=token,
            branch=branch,
            ignore_patterns=[CARD] if keeps else None,
            # Tensors of an earlier model, or its context, which would stay readable beside it.
            delete_patterns=[TENSORS],
        )
    return str(commit.commit_url)


def pull_folder(
    repo_id: str,
    *,
    revision: str | None = None,
    cache_dir: str | PathLike[str] | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
) -> Path:
    """Download a saved model, or find it among earlier downloads; nothing of it is read here.

    Parameters
    ----------
    repo_id : str
        Repository on the hub, ``"owner/name"``.
    revision : str, optional
        Branch, tag or commit. Default: ``"main"``.
    cache_dir : path, optional
        Folder of downloads. Default: that of the hub's client.
    token : str or bool, optional
        Default: the one that the hub's client has stored.
    local_files_only : bool
        Whether to look among earlier downloads only.

    Returns
    -------
    Path
        Folder of the model, among the downloads.

    Raises
    ------
    ValueError
        If ``repo_id`` is no name of a repository.
    HubError
        If the hub cannot be reached and there is no earlier download, or it has no such model.
    """
    hub = _client()
    what = f"The model {repo_id!r}, revision {revision or 'main'!r}, cannot be had"
    with _explained(hub, what, cache_dir or hub.constants.HF_HUB_CACHE), _without_bars(hub):
        # Not `from_pretrained`, which parses config.json and passes on what it finds there.
        adapter = _adapter()._from_pretrained(
            model_id=repo_id,
            revision=revision,
            cache_dir=cache_dir,
            force_download=False,
            local_files_only=local_files_only,
            token=token,
        )
    found: Path = adapter.folder
    if not found.is_dir():
        raise HubError(f"{repo_id!r}, revision {revision or 'main'!r}, holds no model.")
    return found


def _client() -> ModuleType:
    """Import the client of the hub, with the modules that are read here."""
    extra = {"extra": "hub", "purpose": "A model hub"}
    client = import_optional("huggingface_hub", **extra)
    for part in ("constants", "errors", "utils"):
        import_optional(f"huggingface_hub.{part}", **extra)
    return client


@cache
def _adapter() -> Any:
    """Return the hub's mixin over a folder of a model; its base comes with an extra.

    The estimator does not derive from the mixin: that would put what it finds in a downloaded
    config.json into the constructor, and add its own methods and state.
    """
    hub = _client()

    class Folder(hub.ModelHubMixin):  # type: ignore[misc, name-defined]
        """A folder that holds a saved model."""

        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def _save_pretrained(self, save_directory: Path) -> None:
            shutil.copytree(self.folder, save_directory, dirs_exist_ok=True)

        @classmethod
        def _from_pretrained(cls, *, model_id: str, **options: Any) -> "Folder":
            return cls(Path(hub.snapshot_download(model_id, allow_patterns=FILES, **options)))

    return Folder


def _has_card(
    hub: ModuleType,
    api: Any,
    repo_id: str,
    branch: str | None,
    token: str | bool | None,
    is_edited: Callable[[bytes], bool],
) -> bool:
    """Tell whether a repository has a card that somebody has edited."""
    if not api.file_exists(repo_id, CARD, revision=branch):
        return False
    with TemporaryDirectory() as folder:
        options = {"revision": branch, "token": token, "cache_dir": folder}
        return is_edited(Path(hub.hf_hub_download(repo_id, CARD, **options)).read_bytes())


@contextmanager
def _explained(hub: ModuleType, what: str, cache_dir: object = None) -> Iterator[None]:
    """Say what was tried; the client's own error follows, and is the cause."""
    try:
        yield
    except hub.errors.HFValidationError as error:
        raise ValueError(f"`repo_id` is no name of a repository: {error}") from error
    # The client raises what its HTTP library does, which differs between its versions.
    except Exception as error:
        tried = f"asked {hub.constants.ENDPOINT}"
        if hub.constants.HF_HUB_OFFLINE:
            tried = "HF_HUB_OFFLINE is set, so no server was asked"
        if cache_dir is not None:
            tried += f"; looked in {str(cache_dir)!r}"
        reason = " ".join(str(error).split())
        raise HubError(f"{what} ({tried}). {type(error).__name__}: {reason}") from error


@contextmanager
def _without_bars(hub: ModuleType) -> Iterator[None]:
    """Show no bars of progress, unless they are asked for in the environment."""
    utils = hub.utils
    if hub.constants.HF_HUB_DISABLE_PROGRESS_BARS is False or utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()
