"""The catalogue: which images are indexed or served, with codes, labels and metadata, in one SQLite file. No torch.

catalogue.py         Catalogue: add and remove images, and change what is said of them
reading.py           CatalogueReader: list and find images, and their codes
rows.py              Row, Entry: what is stored of an image
decisions.py         Decision: what a person said of the labels of an image
schema.py            the tables, and the checksum of each row
versions.py          a new file gets its tables, one of an older version is converted
database.py          the SQLite file: connections, transactions, errors as sentences
integrity.py         checks that the file is as it was written
row_codes.py         the codes of rows, as an index takes them
writer.py            Writer: additions and deletions that survive a crash, with the files of added images
state_folder.py      StateFolder: where a service keeps the catalogue and the added images
changes.py           the count of changes, by which an index file is caught up
index_file.py        the codes as a search needs them, memory-mapped, beside the catalogue
bulk.py              a catalogue that is written at once
from_folder.py       images of a folder that left it, and those that are new
recoding.py          all images get the codes of another model
paths.py             names that are not UTF-8, as text
"""

from dmuh.catalogue.bulk import write_catalogue
from dmuh.catalogue.catalogue import Catalogue
from dmuh.catalogue.decisions import Decision
from dmuh.catalogue.from_folder import folder_entry, folder_labels, remove_outdated
from dmuh.catalogue.index_file import kept_index, open_index, write_index
from dmuh.catalogue.reading import ORDERS
from dmuh.catalogue.recoding import replace_codes
from dmuh.catalogue.rows import Entry, ImageRow, Row
from dmuh.catalogue.state_folder import StateFolder

__all__ = [
    "ORDERS",
    "Catalogue",
    "Decision",
    "Entry",
    "ImageRow",
    "Row",
    "StateFolder",
    "folder_entry",
    "folder_labels",
    "kept_index",
    "open_index",
    "remove_outdated",
    "replace_codes",
    "write_catalogue",
    "write_index",
]
