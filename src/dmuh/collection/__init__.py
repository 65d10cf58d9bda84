"""Collections: images that were encoded, on disk, with what is known of each. What is indexed is served. No torch.

    catalogue.sqlite    of each image id, path, labels, metadata, uncertainty, code, levels and contents; of all of them
                        the model, where the images came from, and what changed since the index file was written
    index.safetensors   the codes as a search needs them, memory-mapped, once `dmuh index` made it
    texts.safetensors   the codes of the sentences about its images, where there are (`dmuh.encoder.captions`)
    .lock               held by the process that writes or serves
    added/              the files of images that came through a service, and what else a service keeps

Who writes what, and what makes it durable:

- `Collection.write` writes a whole catalogue beside and renames it (`dmuh.catalogue.bulk`): whoever is killed leaves
  the old one or the new one.
- `add`, `remove`, `dmuh index --sync` and a service change rows, each change one transaction of SQLite, with its log
  written ahead and on the disk (WAL, FULL) before it counts. The table `changes` counts it in the same transaction.
- The index file is written whole, and says which changes it has. It may lack some: whoever opens it reads those from
  the catalogue (`dmuh.catalogue.index_file`), so that nobody writes it for a few images.

One process writes at a time, by the lock; any number read, also while one writes, also in a folder that cannot be
written to.

folder.py    Collection: the folder
items.py     Item: one image
paths.py     where images lie: below one folder, or elsewhere
earlier.py   folders of earlier versions are converted when they are opened
serving.py   a service that keeps its own catalogue follows that of an index
"""

from dmuh.collection.folder import Collection
from dmuh.collection.items import Item, Source, items_of

__all__ = ["Collection", "Item", "Source", "items_of"]
