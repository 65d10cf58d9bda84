"""MethodTable: methods by name, of which some are imported when they are first asked for."""

import importlib
from collections.abc import Iterator, Mapping, MutableMapping

from dmuh.methods.rules import Method


class MethodTable(MutableMapping[str, Method]):
    """Methods by name; one that is given as "module:class" is imported when it is first asked for."""

    def __init__(self, methods: "Mapping[str, Method | str]") -> None:
        self._methods = dict(methods)

    def __getitem__(self, name: str) -> Method:
        found = self._methods[name]
        if isinstance(found, str):
            module, _, own = found.partition(":")
            found = self._methods[name] = getattr(importlib.import_module(module), own)
        return found

    def __setitem__(self, name: str, method: Method) -> None:
        self._methods[name] = method

    def __delitem__(self, name: str) -> None:
        del self._methods[name]

    def __contains__(self, name: object) -> bool:
        return name in self._methods

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)

    def __len__(self) -> int:
        return len(self._methods)
