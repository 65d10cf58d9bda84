"""Tables of pandas, where it is installed."""

import importlib
from collections.abc import Mapping
from typing import Any

from dmuh.errors import MissingPackageError


def pandas_table(columns: Mapping[str, Any]) -> Any:
    """Return a pandas DataFrame of these columns; dmuh does not depend on pandas, so it may be missing."""
    try:
        pandas: Any = importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise MissingPackageError("a table needs pandas: pip install pandas") from error
    return pandas.DataFrame(columns)
