"""Methods by name. A new one is a file here with an Objective or a ShallowMethod, and a line in METHODS."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dmuh.config import SECTIONS, Config, build, keys_of
from dmuh.errors import ConfigError, unknown
from dmuh.methods.base import Objective, TrainBatch
from dmuh.methods.csq import CSQ
from dmuh.methods.dcmh import DCMH
from dmuh.methods.ddsh import DDSH
from dmuh.methods.dhn import DHN
from dmuh.methods.dmuh import DMUH, DMUHNoBit, DMUHNoImage, DMUHNoU
from dmuh.methods.dmuh_plus import DMUHPlus
from dmuh.methods.dmuh_x import DMUHX, DMUHPlusX
from dmuh.methods.dpsh import DPSH
from dmuh.methods.dsdh import DSDH
from dmuh.methods.dsh import DSH
from dmuh.methods.regu import Regu
from dmuh.methods.regu_x import ReguX
from dmuh.methods.rules import RULES, Method, network_defaults, own_dropout
from dmuh.methods.table import MethodTable

if TYPE_CHECKING:
    from dmuh.methods.shallow import ShallowMethod

__all__ = ["METHODS", "Method", "Objective", "ShallowMethod", "TrainBatch", "configure", "methods_for"]

METHODS = MethodTable(
    {
        "dmuh": DMUH,
        "dmuh-no-u": DMUHNoU,
        "dmuh-no-bit": DMUHNoBit,
        "dmuh-no-image": DMUHNoImage,
        "dmuh-plus": DMUHPlus,
        "regu": Regu,
        "csq": CSQ,
        "dhn": DHN,
        "dsh": DSH,
        "dpsh": DPSH,
        "dsdh": DSDH,
        "ddsh": DDSH,
        "lfh": "dmuh.methods.lfh:LFH",  # shallow methods are estimators of scikit-learn, whose import takes a second
        "fasth": "dmuh.methods.fasth:FastH",
        "sdh": "dmuh.methods.sdh:SDH",
        "cosdish": "dmuh.methods.cosdish:COSDISH",
        "itq": "dmuh.methods.itq:ITQ",
        "dmuh-x": DMUHX,  # from here on for images and texts
        "dmuh-plus-x": DMUHPlusX,
        "regu-x": ReguX,
        "dcmh": DCMH,
        "cca-itq": "dmuh.methods.cca_itq:CCAITQ",
        "scm": "dmuh.methods.scm:SCM",
    }
)


def methods_for(*, texts: bool) -> list[str]:
    """Return the names of the methods for images and texts, or of those for images alone."""
    return [name for name, method in METHODS.items() if method.takes_texts == texts]


def __getattr__(name: str) -> Any:
    """Import what a shallow method is where it is first asked for."""
    if name == "ShallowMethod":
        from dmuh.methods.shallow import ShallowMethod

        return ShallowMethod
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def configure(*layers: Mapping[str, Any], preset: str = "") -> Config:
    """Stack layers of settings, later ones winning, on the method's preset and defaults; check them all at once.

    >>> config = dmuh.configure({"dataset": "folder", "data": "photos"}, {"bits": 48})
    >>> config.method, config.network.bits, config.data.data
    ('dmuh', 48, 'photos')
    >>> dmuh.configure({"bitts": 48})
    Traceback (most recent call last):
    dmuh.errors.ConfigError: unknown setting 'bitts': did you mean bits ...?
    """
    given: dict[str, Any] = {}
    for layer in layers:
        given |= layer
    name, method = _method(given.pop("method", "dmuh"))
    if preset and preset not in method.presets:
        raise ConfigError(f"{name} has no such preset; {unknown('preset', preset, method.presets)}")
    values = {**method.defaults, **(method.presets[preset] if preset else {}), **given}
    values |= {key: value for key, value in network_defaults(method, values).items() if values.get(key) in (None, "")}
    if values.get("dropout") == "own":
        values["dropout"] = 0.0 if method.kind == "shallow" else own_dropout(values)

    problems = _unknown_settings(method, given)
    problems += [problem for rule in RULES if (problem := rule(name, method, values))]
    sections = {key: build(section, values, problems) for key, section in SECTIONS.items()}
    options = build(method.Options, values, problems)
    if problems:
        raise ConfigError("; ".join(problems))
    return Config(method=name, options=options, **sections)  # type: ignore[arg-type]


def _method(name: Any) -> tuple[str, Method]:
    """Return a method's name and the method; a name that is not in the table is an error."""
    if not isinstance(name, str) or name not in METHODS:
        raise ConfigError(unknown("method", str(name), METHODS))
    return name, METHODS[name]


def _unknown_settings(method: Method, given: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each setting that neither the sections nor the method have."""
    known = {key for section in SECTIONS.values() for key in keys_of(section)} | {*keys_of(method.Options), "method"}
    return [unknown("setting", key, known) for key in given if key not in known]
