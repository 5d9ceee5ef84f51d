"""A corpus of the catalogue -> its files on the disk, checked.

    address --fetch--> NAME.part --unpack--> unfinished --sha256--> NAME

Nothing gets its final name before its digest is right, and what is there already with the right
digest is left alone. What is not here: the list of corpora (catalogue.py), the network (fetch.py)
and the reading of archives (unpack.py).
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from harken.corpora.catalogue import Corpus, Item
from harken.corpora.fetch import Event, Patience, discard, fetch, is_safe
from harken.corpora.unpack import Limits, Unsound, gunzip, unpack
from harken.errors import UserError
from harken.files import refusals, replacing, replacing_folder, sha256, sync


def obtain(
    corpus: Corpus,
    folder: Path,
    *,
    mirror: str | None = None,
    patience: Patience,
    listen: Callable[[Event], None],
) -> list[Path]:
    """Every file of a corpus in `folder`; those that are there and right are not fetched again."""
    addresses = {item: where(corpus, item, mirror) for item in corpus.items}
    missing = [item for item in corpus.items if not _is_there(folder / item.stored, item)]
    with refusals(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for item in missing:
        part = folder / f"{item.file}.part"
        fetch(addresses[item], part, most=item.most, patience=patience, listen=listen)
        try:
            _store(part, folder / item.stored, item)
        except Unsound:
            discard(part)  # the next try must not go on from it
            raise
        discard(part)
    return [folder / item.stored for item in corpus.items]


def where(corpus: Corpus, item: Item, mirror: str | None) -> str:
    """The address of an item: its own, or BASE/NAME/FILE of a mirror."""
    if mirror is None:
        return item.address
    address = f"{mirror.rstrip('/')}/{corpus.name}/{item.file}"
    if not is_safe(address):
        raise UserError(
            f"mirror {mirror}: expected an https address",
            fix="give one like https://HOST/FOLDER (http:// only for this machine itself)",
        )
    return address


def digest(path: Path) -> str:
    """Of a file, or of a folder of files as catalogue.py describes it."""
    if not path.is_dir():
        return sha256(path)
    whole = hashlib.sha256()
    for file in sorted(path.iterdir(), key=lambda file: os.fsencode(file.name)):
        own = sha256(file) if file.is_file() else "no file"
        whole.update(os.fsencode(f"{own}  {file.name}\n"))
    return whole.hexdigest()


def _is_there(path: Path, item: Item) -> bool:
    if not path.exists():
        return False
    found = digest(path)
    if found != item.sha256:
        raise UserError(
            f"{path}: found something else there (sha256 {found}), wanted {item.sha256}",
            fix="remove it, or choose another folder",
        )
    return True


def _store(part: Path, path: Path, item: Item) -> None:
    limits = Limits(bytes=item.most)
    if item.packing == "none":
        _check(part, path, item)
        with refusals(path):
            sync(part)
            part.replace(path)
            sync(path.parent)
    elif item.packing == "gz":
        with replacing(path) as unfinished:
            gunzip(part, unfinished, limits)
            _check(unfinished, path, item)
    else:
        with replacing_folder(path) as unfinished:
            unpack(part, unfinished, kind=item.packing, members=item.members, limits=limits)
            _check(unfinished, path, item)


def _check(unfinished: Path, path: Path, item: Item) -> None:
    found = digest(unfinished)
    if found != item.sha256:
        raise Unsound(
            f"{path}: found sha256 {found}, wanted {item.sha256}: what came from the server is "
            "not the published corpus, and was removed",
            fix="try again, or use another server (command line: --from)",
        )
