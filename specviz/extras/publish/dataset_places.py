"""Places of a dataset: a folder, or a repository on the Hugging Face hub."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from decoders.errors import UserError

from .hub import ANSWER_S, hub_faults

RUNS = "runs"  # the config with a row per run, which comes first


def is_hub(name: str) -> bool:
    """True for a dataset's name that is an id on the hub: ``owner/name``, where no folder is called so.

    >>> is_hub("someone/drafts"), is_hub("./someone/drafts"), is_hub("drafts"), is_hub("/tmp/drafts")
    (True, False, False, False)
    """
    parts = name.split("/")
    return len(parts) == 2 and all(parts) and name[0] not in ".~" and not Path(name).exists()


class FolderPlace:
    """A dataset in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.title = folder, str(folder)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file: give a folder, or owner/name on the hub")

    def read(self, scratch: Path, *, with_data: bool = False) -> Path:
        return self.folder

    def write(self, new: Path, message: str) -> None:
        """Move the files in; those of ``runs`` after all others, and the card last. Half of one is never seen."""
        files = sorted(path.relative_to(new) for path in new.rglob("*") if path.is_file())
        files.sort(key=lambda path: (path.name == "README.md", path.parts[1:2] == (RUNS,)))
        for path in files:
            goal = self.folder / path
            goal.parent.mkdir(parents=True, exist_ok=True)
            partial = goal.with_name(f".{goal.name}.part")
            shutil.copyfile(new / path, partial)
            os.replace(partial, goal)


class Hub:
    """A dataset on the Hugging Face hub."""

    def __init__(self, name: str, private: bool) -> None:
        self.name, self.private, self.title = name, private, f"https://huggingface.co/datasets/{name}"
        self._parent: str | None = None

    def read(self, scratch: Path, *, with_data: bool = False) -> Path:
        """Fetch the dataset: all of it, or the runs' rows and the card. A dataset that does not exist is empty."""
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.errors import RepositoryNotFoundError

        scratch.mkdir(parents=True)
        patterns = ["README.md", "data/**" if with_data else f"data/{RUNS}/*"]
        with hub_faults(self.name, "dataset", "nothing was written"):
            try:
                self._parent = HfApi().dataset_info(self.name, timeout=ANSWER_S).sha
                snapshot_download(
                    self.name, repo_type="dataset", revision=self._parent, allow_patterns=patterns, local_dir=scratch
                )
            except RepositoryNotFoundError:
                if with_data:
                    raise UserError(
                        f"there is no dataset {self.name} on the hub, or you may not see it: check the name, or sign "
                        "in with `hf auth login`"
                    ) from None
        return scratch

    def write(self, new: Path, message: str) -> None:
        """One commit on what ``read`` saw, so that two pushes at once cannot lose one another's card."""
        from huggingface_hub import CommitOperationAdd, HfApi

        files = sorted(path for path in new.rglob("*") if path.is_file())
        operations = [CommitOperationAdd(path.relative_to(new).as_posix(), path) for path in files]
        with hub_faults(self.name, "dataset", "nothing was written"):
            api = HfApi()
            api.create_repo(self.name, repo_type="dataset", private=self.private, exist_ok=True)
            api.create_commit(
                self.name, operations, commit_message=message, repo_type="dataset", parent_commit=self._parent
            )
