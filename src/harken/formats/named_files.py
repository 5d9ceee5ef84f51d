"""Files that a corpus names: those that are missing are told at once, not an hour into a training.

What is in a file is looked at when it is read (sound/, images/).
"""

from pathlib import Path

from harken.errors import UserError
from harken.inputs import is_file


class NamedFiles:
    """Looks for each file once, and tells the first that is missing with the number of the rest."""

    def __init__(self, what: str) -> None:
        self._what = what  # such as "sound file"
        self._there: dict[Path, bool] = {}
        self._missing: list[str] = []

    def look_for(self, path: Path, where: str) -> None:
        """`where` is the place that names it."""
        if path in self._there:
            return
        self._there[path] = is_file(path)
        if not self._there[path]:
            self._missing.append(f"{where}: found no {self._what} {str(path)[:200]}")

    def require_all(self) -> None:
        """To be called when every name is known."""
        if not self._missing:
            return
        others = len(self._missing) - 1
        more = f", nor {others} others of {len(self._there)}" if others else ""
        raise UserError(
            f"{self._missing[0]}{more}, wanted all of them",
            fix="check the paths: a relative one begins at the folder of the file that names it",
        )


def require_unicode(where: str, *texts: str) -> None:
    """Refuse half a character, which JSON can spell and no file can hold."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"{where}: found {text[:60]!r}, wanted a name or text that is Unicode",
                fix="rename the file, or mend the text",
            ) from error
