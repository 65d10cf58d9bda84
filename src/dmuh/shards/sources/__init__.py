"""What is encoded in shards: data sets, tar files and Parquet lists, one file per kind; base.py is what they share."""

from collections.abc import Sequence
from pathlib import Path

from dmuh.errors import DataError
from dmuh.shards.sources.base import ImageBatch, ImageSource
from dmuh.shards.sources.dataset import DatasetSource
from dmuh.shards.sources.parquet import ListSource
from dmuh.shards.sources.tar import TarSource

__all__ = ["DatasetSource", "ImageBatch", "ImageSource", "ListSource", "TarSource", "open_source"]


def open_source(paths: Sequence[Path]) -> ImageSource | None:
    """Return the source of tar files, or of Parquet lists, if that is what the paths are."""
    for suffix, kind in ((".tar", TarSource), (".parquet", ListSource)):
        of_kind = [path for path in paths if path.suffix.lower() == suffix]
        if of_kind and len(of_kind) < len(paths):
            raise DataError(f"{suffix} files and others cannot be encoded together: {of_kind[0]} is one of the former")
        if of_kind:
            gone = next((path for path in paths if not path.is_file()), None)
            if gone is not None:
                raise DataError(f"{gone} does not exist")
            return kind(tuple(paths))
    return None
