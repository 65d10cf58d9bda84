"""Codes: packed binary codes with their ids and, where it is known, how sure each bit is.

codes.py        Codes: how they are made, what is known of them, their file
arrays.py       the arrays that they consist of, as a list
checks.py       what these arrays must be
percentiles.py  how an image's uncertainty compares with that of others
table.py        tables of pandas
"""

from dmuh.codes.codes import Codes
from dmuh.codes.percentiles import less_certain_than, uncertainty_percentiles
from dmuh.codes.table import pandas_table

__all__ = ["Codes", "less_certain_than", "pandas_table", "uncertainty_percentiles"]
