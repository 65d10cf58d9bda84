"""HashModel: stands in for the model of a collection whose codes are hashes that another program computed."""

from typing import Any, NoReturn, cast

from dmuh.collection import Collection
from dmuh.encoder import Hasher
from dmuh.errors import InputError
from dmuh.images import Preprocess

_HASH = "hash "  # before the name, in place of the digest of a model


def digest_of_hash(name: str) -> str:
    """Return what a collection of hashes says in place of the digest of its model."""
    return f"{_HASH}{name}"


def hash_name(digest: str) -> str | None:
    """Return what the hashes of a collection are called, by the digest of its model; None if it has a model."""
    return digest.removeprefix(_HASH) if digest.startswith(_HASH) else None


class HashModel(Hasher):
    """Knows how long hashes are and what they are called, and encodes no image: that takes the other program."""

    def __init__(self, name: str, n_bits: int) -> None:
        about = {"method": name, "backbone": "none", "n_bits": n_bits, "preprocess": None}
        super().__init__(cast(Any, None), None, about, digest_of_hash(name))

    @classmethod
    def of(cls, collection: Collection) -> "HashModel | None":
        """Return the stand-in for a collection's model; None if it has one."""
        with collection.reading() as catalogue:
            name = hash_name(catalogue.about("model") or "")
            return None if name is None else cls(name, catalogue.n_bits)

    @property
    def refusal(self) -> str:
        """Why images cannot be encoded, and what to search with instead."""
        name = self.about["method"]
        return (
            f"images cannot be sent here, as their {name} is computed by another program: search with an image that is "
            f"here, or with a {name} value"
        )

    @property
    def no_texts(self) -> str:
        """Why texts cannot be encoded."""
        return f"texts cannot be searched with here, as codes are {self.about['method']}, computed by another program"

    @property
    def preprocess(self) -> Preprocess:
        """How images would be read; none are."""
        return Preprocess(size=32, resize=32)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle what it knows."""
        return HashModel, (self.about["method"], self.n_bits)

    def __repr__(self) -> str:
        return f"HashModel({self.about['method']}, {self.n_bits} bits)"

    def encode(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to encode images."""
        raise InputError(self.refusal)

    def encode_pixels(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to encode images."""
        raise InputError(self.refusal)
