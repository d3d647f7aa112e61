"""A site as a static Space on the Hugging Face hub: what differs is uploaded, in several commits, the list last."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from decoders.errors import UserError

from .. import hub
from ..hub import hub_faults

PREFIX = "hf:"
COMMIT_BYTES = 8_000_000  # of files in a commit: what a commit brought stays where a later one fails
COMMIT_FILES = 200
CARD = """---
title: "{title}"
emoji: 🔍
colorFrom: blue
colorTo: gray
sdk: static
pinned: false
tags: [speculative-decoding, specviz]
---

Recorded runs of speculative decoding, published with `specviz publish`.
"""


class Space:
    """A static Space, ``owner/name``; private unless ``public``."""

    def __init__(self, name: str, public: bool) -> None:
        self.name, self.public = name, public
        self.address = ""

    def open(self) -> None:
        """Make the Space where there is none. Raises UserError for one of another kind, and for one that everybody sees
        where that was not asked for.
        """
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError

        api = HfApi()
        with hub_faults(self.name, "Space", "nothing was uploaded"):
            self.address = f"{api.endpoint}/spaces/{self.name}"
            try:
                space = api.space_info(self.name, timeout=hub.ANSWER_S)
            except RepositoryNotFoundError:
                api.create_repo(self.name, repo_type="space", space_sdk="static", private=not self.public)
                return
            if space.sdk != "static":
                raise UserError(f"{self.name} is a Space of another kind ({space.sdk}): give another name")
            if not space.private and not self.public:
                raise UserError(f"the Space {self.name} is public: add --public, or give another name")
            if space.private and self.public:
                api.update_repo_settings(self.name, repo_type="space", private=False)

    def upload(self, folder: Path, names: Sequence[str], title: str) -> int:
        """Upload the files of a site that the Space has not, delete what it has besides; gives how many were uploaded.
        The pages come last, so that none names a run that is not there.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
        from huggingface_hub.hf_api import RepoFile

        api, count = HfApi(), 0
        contents = {name: folder / name for name in names}
        state = "what was uploaded stays, and the same command goes on from there"
        with hub_faults(self.name, "Space", state):
            tree = api.list_repo_tree(self.name, repo_type="space", recursive=True)
            remote_ids = {file.path: file.blob_id for file in tree if isinstance(file, RepoFile)}
            card = CARD.format(title=title.replace("\\", "").replace('"', "'")[:100]).encode()
            new = [name for name, path in contents.items() if remote_ids.get(name) != blob_id(path.read_bytes())]
            data = [name for name in new if "/" in name]
            for part in parts(data, contents):
                adds = [CommitOperationAdd(name, contents[name]) for name in part]
                api.create_commit(self.name, adds, commit_message="Runs", repo_type="space")
                count += len(part)
            site_names = {*contents, "README.md", ".gitattributes"}
            last = [CommitOperationAdd(name, contents[name]) for name in new if "/" not in name]
            last += [CommitOperationAdd("README.md", card)] if remote_ids.get("README.md") != blob_id(card) else []
            count += len(last)
            deletions = [CommitOperationDelete(name) for name in sorted(remote_ids.keys() - site_names)]
            if last or deletions:
                api.create_commit(self.name, [*last, *deletions], commit_message="Pages", repo_type="space")
        return count


def parts(names: Sequence[str], contents: dict[str, Path]) -> Iterator[list[str]]:
    """Names of files in groups, one per commit."""
    group: list[str] = []
    size = 0
    for name in names:
        length = contents[name].stat().st_size
        if group and (size + length > COMMIT_BYTES or len(group) == COMMIT_FILES):
            yield group
            group, size = [], 0
        group.append(name)
        size += length
    if group:
        yield group


def blob_id(data: bytes) -> str:
    """Git's name for a file's content.

    >>> blob_id(b"")
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
