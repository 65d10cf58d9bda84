"""ServedTexts: sentences that are searched with, where the model of a service has texts."""

import logging
from collections.abc import Callable, Mapping

from dmuh.codes import Codes
from dmuh.encoder import Hasher
from dmuh.encoder.curve import Curve
from dmuh.errors import DmuhError, RequestError
from dmuh.server.batcher import Batcher

log = logging.getLogger(__name__)


class ServedTexts:
    """Gives sentences their codes, those of concurrent requests together, in a thread of its own.

    refusal  why there are none here; None if there are
    match    by ranking, the probability that a text and an image share a label by their distance
    """

    def __init__(self, hasher: Hasher, sure: int, on_batch: Callable[[int], None]) -> None:
        self._hasher, self._sure = hasher, sure
        self.refusal = hasher.no_texts
        self.match: Mapping[str, Curve] = {}
        if hasher.texts is not None and self.refusal is None:
            self.match = hasher.texts.calibration.match_by_ranking(sure)
            try:
                hasher.encode_texts("ready")  # the first query shall not wait for the encoder
            except DmuhError as error:  # images are served all the same
                self.refusal = f"texts cannot be searched with here: {error}"
                log.warning(self.refusal)
        self._encoding: Batcher[str, Codes] = Batcher("encode-text", self._encode, waiting=256, on_batch=on_batch)

    async def encode(self, text: str) -> Codes:
        """Return the code of a sentence."""
        if self.refusal is not None:
            raise RequestError(422, self.refusal)
        if not text.strip():
            raise RequestError(422, "a text must say what to look for, got an empty one")
        return await self._encoding.submit(text)

    def close(self) -> None:
        """End the thread."""
        self._encoding.close()

    def _encode(self, texts: list[str]) -> list[Codes | Exception]:
        codes = self._hasher.encode_texts(texts, sure=self._sure)
        return [codes[row : row + 1] for row in range(len(codes))]
