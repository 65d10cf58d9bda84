"""csv: a list of images with their labels.

The path of an image is a column (`path_column`) or is built from columns (`path_format`), relative to the list. Labels
are one column of names separated by ; (`label_column`, `label_separator`), or one 0/1 column per label. Sentences about
an image are one or more columns (`texts`), each cell one sentence, whose line breaks are spaces; then rows of the same
image are one image with the sentences and labels of all. All other columns are kept as metadata.
"""

import csv
import re
import string
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dmuh.datasets.base import Dataset, Labels, Texts, existing, having_texts, in_one_line, multi_hot, texts_of
from dmuh.errors import DataError, unknown
from dmuh.images import OnBadImage

PATH_COLUMNS = ("image", "path", "file", "filename", "image_path")
LABEL_COLUMNS = ("labels", "label", "class", "classes")

Rows = list[dict[str, str]]


def load_csv(
    file: Path,
    *,
    path_column: str = "",
    path_format: str = "",
    label_column: str = "",
    label_separator: str = "",
    texts: str = "",
    on_bad_image: OnBadImage = "fail",
) -> Dataset:
    """Read a list; images that do not exist are an error or left out, as `on_bad_image` says.

    Where texts are read, images that have none are left out.
    """
    rows, columns = _read(file)
    paths, path_keys = _paths(rows, columns, path_column, path_format, file)
    there, notes = existing(paths, file, on_bad_image, "correct the list or path_format")
    rows, paths = [rows[i] for i in there], [paths[i] for i in there]
    text_columns = _text_columns(texts, columns, file)
    captions = None
    begins = list(range(len(rows)))  # the first row of each image
    if text_columns:
        rows = [row | {column: in_one_line(row[column]) for column in text_columns} for row in rows]
        rows, paths, captions, begins = _merged(rows, paths, text_columns, file, notes)
    rest = [column for column in columns if column not in (*path_keys, *text_columns)]
    labels, classes, used = _labels(rows, rest, label_column, label_separator, file)
    labels = np.maximum.reduceat(labels, begins)
    unlabelled = int((labels.sum(axis=1) == 0).sum())
    if unlabelled:
        notes.append(f"{unlabelled:,} images have no label")
    metadata = {column: _by_image([row[column] for row in rows], begins) for column in columns if column not in used}
    return Dataset("csv", paths, labels, classes, metadata, tuple(notes), texts=captions)


def _paths(
    rows: Rows, columns: list[str], path_column: str, path_format: str, file: Path
) -> tuple[list[Path], list[str]]:
    """Return the path of each row, and the columns that it comes from."""
    if not path_format:
        column = _path_column(path_column, columns, file)
        return [file.parent / row[column] for row in rows], [column]
    path_keys = _keys(path_format, columns, file)
    try:
        return [file.parent / path_format.format_map(row) for row in rows], path_keys
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise DataError(f"path_format {path_format!r} does not fit the columns, which are texts: {error}") from error


def _text_columns(given: str, columns: list[str], file: Path) -> list[str]:
    """Return the columns with texts: one, or several with ; or a comma between their names."""
    names = [given] if given in columns else [name.strip() for name in re.split("[;,]", given)]
    return [_known(name, columns, file) for name in names if name]


def _merged(
    rows: Rows, paths: list[Path], text_columns: list[str], file: Path, notes: list[str]
) -> tuple[Rows, list[Path], Texts, list[int]]:
    """Return the rows of images with texts, image by image; these images, their texts, and where their rows begin."""
    rows_of: dict[Path, Rows] = {}
    for path, row in zip(paths, rows, strict=True):
        rows_of.setdefault(path, []).append(row)
    images, grouped = list(rows_of), list(rows_of.values())
    said = [texts_of(row[column] for row in own for column in text_columns) for own in grouped]
    kept = having_texts(range(len(images)), said, file, notes)
    begins = np.cumsum([0, *(len(grouped[n]) for n in kept)])[:-1].tolist()
    merged = [row for n in kept for row in grouped[n]]
    return merged, [images[n] for n in kept], tuple(said[n] for n in kept), begins


def _by_image(values: list[str], begins: list[int]) -> list[str]:
    """Return one value per image: where its rows have different ones all of them, one per line."""
    if len(begins) == len(values):
        return values
    ends = [*begins[1:], len(values)]
    return ["\n".join(dict.fromkeys(values[begin:end])) for begin, end in zip(begins, ends, strict=True)]


def csv_rows(file: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file, each with all columns, one at a time."""
    if file.is_fifo():
        raise DataError(f"cannot read the list {file}: not a regular file")  # it would be waited for
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            header = lines.readline()
            lines.seek(0)
            reader = csv.DictReader(lines, delimiter=max(",;\t", key=header.count), strict=True)
            columns = list(reader.fieldnames or [])
            for name in columns:
                if columns.count(name) > 1:
                    raise DataError(f"{file} has the column {name!r} twice")
            for row in reader:
                if None in row or None in row.values():
                    raise DataError(f"{file}, line {reader.line_num}: not {len(columns)} columns as the header has")
                yield row
    except OSError as error:
        raise DataError(f"cannot read the list {file}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} is not a CSV file in UTF-8: {error}") from error


def _read(file: Path) -> tuple[Rows, list[str]]:
    rows = list(csv_rows(file))
    if not rows:
        raise DataError(f"{file} lists no images")
    return rows, list(rows[0])


def _path_column(given: str, columns: list[str], file: Path) -> str:
    if given:
        return _known(given, columns, file)
    for name in columns:
        if name.lower() in PATH_COLUMNS:
            return name
    raise DataError(
        f"{file} has no column {', '.join(PATH_COLUMNS)}: name one of {', '.join(columns)} by path_column, "
        "or build the path by path_format, e.g. images/{image_id}.jpg"
    )


def _keys(template: str, columns: list[str], file: Path) -> list[str]:
    try:
        keys = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise DataError(
            f"path_format {template!r} is not a pattern such as images/{{image_id}}.jpg: {error}"
        ) from error
    if not keys:
        raise DataError(f"path_format {template!r} names no column: write one in braces, e.g. images/{{image_id}}.jpg")
    return [_known(key, columns, file) for key in keys]


def _labels(
    rows: Rows, columns: list[str], label_column: str, separator: str, file: Path
) -> tuple[Labels, tuple[str, ...], set[str]]:
    """Return the label matrix, the class names and the columns they came from."""
    column = _known(label_column, columns, file) if label_column else ""
    if not column:
        column = next((name for name in columns if name.lower() in LABEL_COLUMNS), "")
    if column:
        cells = [row[column] for row in rows]
        _check_separator(cells, column, separator, file)
        names = [[part.strip() for part in cell.split(separator or ";") if part.strip()] for cell in cells]
        classes = tuple(sorted({name for image_names in names for name in image_names}))
        return multi_hot(names, classes), classes, {column}
    flags = tuple(name for name in columns if all(row[name].strip() in ("0", "1") for row in rows))
    if not flags:
        raise DataError(
            f"{file} has no labels: expected a column {', '.join(LABEL_COLUMNS)} or columns of 0 and 1, "
            f"found {', '.join(columns) or 'only the path'}"
        )
    matrix = np.array([[row[name].strip() == "1" for name in flags] for row in rows], np.uint8)
    return matrix, flags, set(flags)


def _check_separator(cells: list[str], column: str, separator: str, file: Path) -> None:
    if separator:
        if len(separator) > 1 or separator.isalnum():
            raise DataError(f"label_separator must be one character such as ; | or a comma, got {separator!r}")
        return
    for other in "|,":
        example = next((cell for cell in cells if other in cell), None)
        if example is not None and not any(";" in cell for cell in cells):
            raise DataError(
                f"{file}: labels in column {column} are expected to be separated by ; but none has one and there is "
                f"{example!r}: say which it is by label_separator={other} or label_separator=;"
            )


def _known(column: str, columns: list[str], file: Path) -> str:
    if column not in columns:
        raise DataError(f"{file}: {unknown('column', column, columns)}")
    return column
