"""kill -9 while images are added and deleted: nothing that was acknowledged is lost, and nothing is half there."""

import logging
import random
import threading
import time

import httpx2
import pytest
from serving import Server, picture

from dmuh.catalogue.integrity import ChecksumFile

log = logging.getLogger(__name__)

WRITERS = 4


class Ledger:
    """What the service has acknowledged."""

    def __init__(self) -> None:
        self.added: dict[int, bytes] = {}
        self.deleted: set[int] = set()
        self.unsure: set[int] = set()  # deletions that were asked for when it was killed

    def write(self, address: str, seed: int) -> None:
        """Add and delete images until the service is gone."""
        rng = random.Random(seed)
        mine: list[int] = []
        with httpx2.Client(base_url=address, timeout=30) as client:
            for n in range(10_000):
                try:
                    if mine and rng.random() < 0.3:
                        id_ = mine.pop(rng.randrange(len(mine)))
                        self.unsure.add(id_)
                        if client.delete(f"/api/images/{id_}").status_code == 204:
                            self.deleted.add(id_)
                    else:
                        content = picture(seed=1000 * seed + n)
                        answer = client.post(
                            "/api/images?label=new", content=content, headers={"content-type": "image/png"}
                        )
                        if answer.status_code == 201:
                            self.added[answer.json()["id"]] = content
                            mine.append(answer.json()["id"])
                except httpx2.HTTPError:
                    return

    def check(self, client: httpx2.Client, fresh: set[int]) -> None:
        """Compare what is there with what was acknowledged; those in `fresh` are searched for."""
        listed: dict[int, dict] = {}
        while page := client.get(f"/api/images?n=200&offset={len(listed)}").json()["images"]:
            listed |= {image["id"]: image for image in page}
        assert not listed.keys() & self.deleted
        kept = self.added.keys() - self.unsure
        assert kept <= listed.keys()
        for id_ in (self.added.keys() & fresh) - self.unsure:
            assert client.get(f"/api/images/{id_}/file").content == self.added[id_]
            answer = client.post("/api/search?k=1000", content=self.added[id_], headers={"content-type": "image/png"})
            assert id_ in [match["id"] for match in answer.json()["matches"] if match["identical"]]
        for id_, image in listed.items():
            if image["path"].startswith("added/") and (id_ in fresh or id_ not in self.added):
                assert client.get(f"/api/images/{id_}/file").status_code == 200, "a row without its file"
                assert client.get(f"/api/search?id={id_}").status_code == 200


def kill_often(times: int, model, folder, state) -> Ledger:
    ledger, known, known_deleted = Ledger(), set(), set()
    options = (model, "--images", folder, "--state", state)
    for round_ in range(times):
        with Server(*options) as server:
            writers = [
                threading.Thread(target=ledger.write, args=(server.address, 100 * round_ + n)) for n in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            begun = time.monotonic()
            while (
                not (ledger.added.keys() - known and ledger.deleted - known_deleted) and time.monotonic() < begun + 60
            ):
                time.sleep(0.01)  # on a busy machine the first answer takes seconds
            time.sleep(random.Random(round_).uniform(0.2, 1.2))
            server.process.kill()
            for writer in writers:
                writer.join()
        with Server(*options) as server, httpx2.Client(base_url=server.address, timeout=30) as client:
            ledger.check(client, ledger.added.keys() - known)
            rows = client.get("/api/about").json()["images"] - 20
        assert ChecksumFile(state / "catalogue.sqlite").matches(), "it was told to end, and closed its catalogue"
        assert len(list((state / "added").iterdir())) == rows, "a file without a row, or the other way"
        aside = [file.read_bytes() for file in (state / "set-aside").glob("*")]
        kept = {content for id_, content in ledger.added.items() if id_ not in ledger.unsure}
        assert not kept & set(aside), "what was acknowledged was set aside"
        known, known_deleted = set(ledger.added), set(ledger.deleted)
    return ledger


@pytest.mark.long
def test_what_was_acknowledged_survives_kill_9(model, folder, tmp_path):
    ledger = kill_often(2, model, folder, tmp_path / "state")
    assert len(ledger.added) >= len(ledger.deleted) >= 2


@pytest.mark.slow
def test_what_was_acknowledged_survives_fifty_times(model, folder, tmp_path):
    ledger = kill_often(50, model, folder, tmp_path / "state")
    assert len(ledger.added) > 500
    aside = len(list((tmp_path / "state" / "set-aside").glob("*")))
    log.info("%s added, %s deleted, %s files set aside", len(ledger.added), len(ledger.deleted), aside)
