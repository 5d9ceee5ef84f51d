"""Inspections and uploads that the server keeps, the latest first."""

import secrets
from collections import OrderedDict
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import NamedTuple

from harken.serve.errors import ApiError
from harken.serve.inspection import Inspection
from harken.serve.settings import Limits


class Upload(NamedTuple):
    """The file of an uploaded sound or image, and its media type."""

    path: Path
    media_type: str


class Store:
    """Keeps a bounded number of inspections and uploads, in the order of their last use."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._lock = limits, Lock()
        self._inspections: OrderedDict[str, Inspection] = OrderedDict()
        self._uploads: OrderedDict[str, Upload] = OrderedDict()
        self._folder = TemporaryDirectory(prefix="harken-serve-", ignore_cleanup_errors=True)

    def add_inspection(self, inspection: Inspection) -> str:
        """Store an inspection and return its id."""
        identifier = secrets.token_urlsafe(9)
        with self._lock:
            self._inspections[identifier] = inspection
            size = sum(stored.weight_bytes for stored in self._inspections.values())
            while len(self._inspections) > 1 and (
                len(self._inspections) > self._limits.inspections
                or size > self._limits.weight_bytes
            ):
                _, removed = self._inspections.popitem(last=False)
                size -= removed.weight_bytes
        return identifier

    def inspection(self, identifier: str) -> Inspection:
        """Return a stored inspection."""
        with self._lock:
            if identifier not in self._inspections:
                fix = "send the inspect request again"
                raise ApiError(410, "the inspection is no longer stored", fix=fix)
            self._inspections.move_to_end(identifier)
            return self._inspections[identifier]

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers of stored inspections and uploads."""
        return {"inspections": len(self._inspections), "uploads": len(self._uploads)}

    def add_upload(self, content: bytes, media_type: str) -> str:
        """Write an upload to a file with a name of the server, and return its id."""
        identifier = secrets.token_hex(9)
        path = Path(self._folder.name) / identifier
        path.write_bytes(content)
        with self._lock:
            self._uploads[identifier] = Upload(path, media_type)
            while len(self._uploads) > self._limits.uploads:
                _, removed = self._uploads.popitem(last=False)
                removed.path.unlink(missing_ok=True)
        return identifier

    def upload(self, identifier: str) -> Upload:
        """Return a stored upload."""
        with self._lock:
            if identifier not in self._uploads:
                raise ApiError(404, "the upload is no longer stored", fix="send it again")
            self._uploads.move_to_end(identifier)
            return self._uploads[identifier]

    def close(self) -> None:
        """Remove all uploads."""
        self._folder.cleanup()
