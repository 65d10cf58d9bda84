"""All images of a catalogue get the codes of another model; their ids, labels and all else stay."""

from dmuh.catalogue.catalogue import Catalogue
from dmuh.catalogue.rows import code_row, worth_note
from dmuh.catalogue.schema import image_checksum, restart, write_note
from dmuh.codes import Codes

_MANY = 4096  # rows that are read together


def replace_codes(catalogue: Catalogue, codes: Codes, model: str) -> None:
    """Replace the codes of all images by those with their ids, all or none; images without one leave the catalogue.

    `model` is the digest of the model that made them.
    """
    mean = codes.image_uncertainty
    place = {id_: row for row, id_ in enumerate(codes.ids.tolist())}
    ids = catalogue.codes().ids.tolist()
    with catalogue.transaction() as connection:
        write_note(connection, "worth", worth_note(codes.worth))
        write_note(connection, "model", model)
        restart(connection)
        for first in range(0, len(ids), _MANY):
            for row in catalogue.rows(ids[first : first + _MANY]):
                if row.id not in place:
                    catalogue.remove(row.id, forget=False)
                    continue
                at = place[row.id]
                unsure = None if mean is None else float(mean[at])
                checksum = image_checksum(*row[:6], unsure)
                connection.execute("INSERT OR REPLACE INTO codes VALUES (?, ?, ?, ?, ?)", code_row(row.id, codes, at))
                connection.execute(
                    "UPDATE images SET uncertainty = ?, checksum = ? WHERE id = ?", (unsure, checksum, row.id)
                )
