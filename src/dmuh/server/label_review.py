"""LabelReview: the images of a catalogue whose labels are probably wrong, found in a thread of its own."""

import csv
import io
import json
import logging
from collections.abc import Callable
from pathlib import Path

from dmuh.catalogue import Catalogue, Decision, Row
from dmuh.errors import DmuhError, RequestError
from dmuh.features import FolderFeatures
from dmuh.review import Suspect, of_catalogue, suspects_of
from dmuh.server.finding import Finding
from dmuh.server.json_answers import shown_path

log = logging.getLogger(__name__)

_AT_LEAST = 0.5  # probability from which a label is shown as probably wrong
COLUMNS = ("path", "labels", "suggested", "probability", "in_words", "decision")


class LabelReview:
    """Suspects of a catalogue, judged by features where `features` gives those of its folder, else by codes."""

    def __init__(self, catalogue: Catalogue, root: Path, features: Callable[[], FolderFeatures] | None) -> None:
        self._catalogue = catalogue
        self._root = root
        self._features = features
        self._finding = Finding("review", catalogue, self._find)

    def close(self) -> None:
        """End the thread."""
        self._finding.close()

    def suspects(self) -> tuple[list[Suspect], bool]:
        """Return the suspects that are found, the most probable first, and whether they are still looked for."""
        found, working = self._finding.found()
        there = set(self._catalogue.ids().tolist())
        return [suspect for suspect in found if suspect.id in there], working

    def page(self, n: int, offset: int, decided: bool, as_json: Callable[[Row], str]) -> str:
        """Return a part of the suspects as JSON: those on which nothing was decided yet, or the others."""
        suspects, working = self.suspects()
        decisions = self._catalogue.decisions()
        wanted = [suspect for suspect in suspects if (suspect.id in decisions) == decided]
        part = wanted[offset : offset + n]
        rows = {row.id: row for row in self._catalogue.rows(suspect.id for suspect in part)}
        listed = [
            f'{{"image":{as_json(rows[suspect.id])},"suggested":{json.dumps(suspect.suggested)},'
            f'"probability":{suspect.probability},"in_words":{json.dumps(suspect.in_words)},'
            f'"decision":{_decision_json(decisions.get(suspect.id))}}}'
            for suspect in part
            if suspect.id in rows
        ]
        n_decided = sum(suspect.id in decisions for suspect in suspects)
        return (
            f'{{"working":{json.dumps(working)},"open":{len(suspects) - n_decided},"decided":{n_decided},'
            f'"suspects":[{",".join(listed)}]}}'
        )

    def decide(self, id_: int, kind: str) -> None:
        """Keep what a person said of a suspect: accept what is suggested, skip it, or undo what was said."""
        suspect = next((one for one in self.suspects()[0] if one.id == id_), None)
        if suspect is None:
            raise RequestError(404, f"image {id_} is not among those whose label is probably wrong")
        decision = {"accept": Decision("accept", suspect.suggested), "skip": Decision("skip")}.get(kind)
        if not self._catalogue.decide(id_, decision):
            raise RequestError(404, f"there is no image {id_}")

    def decisions_list(self) -> str:
        """Return the suspects on which something was decided, as a list that `dmuh review` takes."""
        decisions = self._catalogue.decisions()
        suspects = [suspect for suspect in self.suspects()[0] if suspect.id in decisions]
        rows = {row.id: row for row in self._catalogue.rows(suspect.id for suspect in suspects)}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for suspect in suspects:
            if suspect.id in rows:
                row = rows[suspect.id]
                path = shown_path(row.path.decode("utf-8", "backslashreplace"), added=bool(row.added))
                writer.writerow((
                    path, ";".join(suspect.labels), ";".join(suspect.suggested), f"{suspect.probability:.4f}",
                    suspect.in_words, decisions[suspect.id].kind,
                ))  # fmt: skip
        return text.getvalue()

    def _find(self) -> list[Suspect]:
        try:
            features = None if self._features is None else self._features()
            return suspects_of(of_catalogue(self._catalogue, self._root, features), at_least=_AT_LEAST)
        except DmuhError as error:  # too few images, or labels
            log.info("no labels are looked at: %s", error)
            return []


def _decision_json(decision: Decision | None) -> str:
    return "null" if decision is None else json.dumps(decision.kind)
