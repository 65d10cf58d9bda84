"""The catalogue: which images are served, with their codes, labels and metadata, in one SQLite file. No torch.

catalogue.py         Catalogue: add, remove, list and find images
decisions.py         Decision: what a person said of the labels of an image
schema.py            the tables, and the checksum of each row
versions.py          a new file gets its tables, one of an older version is converted
database.py          the SQLite file: connections, transactions, errors as sentences
integrity.py         checks that the file is as it was written
row_codes.py         the codes of rows, as an index takes them
writer.py            Writer: additions and deletions that survive a crash, with the files of added images
state_folder.py      StateFolder: where a service keeps the catalogue and the added images
from_folder.py       images of a folder into the catalogue
from_collection.py   images that `dmuh index` indexed into the catalogue
recoding.py          all images get the codes of another model
paths.py             paths below one folder, and names that are not UTF-8
"""

from dmuh.catalogue.catalogue import ORDERS, Catalogue, Entry, Row
from dmuh.catalogue.decisions import Decision
from dmuh.catalogue.from_collection import import_collection
from dmuh.catalogue.from_folder import add_images, folder_entry, folder_labels, remove_outdated
from dmuh.catalogue.recoding import replace_codes
from dmuh.catalogue.state_folder import StateFolder

__all__ = [
    "ORDERS",
    "Catalogue",
    "Decision",
    "Entry",
    "Row",
    "StateFolder",
    "add_images",
    "folder_entry",
    "folder_labels",
    "import_collection",
    "remove_outdated",
    "replace_codes",
]
