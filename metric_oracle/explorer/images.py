"""Images of the studies, from a folder of the user; no path leaves the folder."""

from dataclasses import dataclass
from pathlib import Path

from metric_oracle.base.errors import InputError

TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}


@dataclass(frozen=True)
class Images:
    """Images whose names are ids of reports."""

    folder: Path  # has a file ID.png (.jpg, .jpeg, .webp), or a folder ID of such files, of which the first is shown

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise InputError(
                "images",
                "must be an existing folder",
                self.folder,
                "Pass the folder with the files of the images as `images=FOLDER`.",
            )

    def of(self, study: str) -> Path | None:
        """Return the file of the image for an id; None if there is none, or if the path leaves the folder."""
        if not study or "\0" in study:
            return None
        inside = self.folder.resolve()
        if not (inside / study).resolve().is_relative_to(inside):
            return None
        named = [inside / f"{study}{ending}" for ending in TYPES]
        try:
            several = sorted(path for path in (inside / study).glob("*") if path.suffix.lower() in TYPES)
            files = [path.resolve() for path in (*named, *several) if path.is_file()]
        except (OSError, RuntimeError):  # a name that is too long, or links in a circle
            return None
        return next((path for path in files if path.is_relative_to(inside) and path.suffix.lower() in TYPES), None)
