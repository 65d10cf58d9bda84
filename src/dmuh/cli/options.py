"""Options that several commands take, and how they are shown in a help."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., None])

SET_HELP = "Any setting, see `dmuh list --settings`; may be repeated."
_LIST = "A list of images (--dataset csv)"


def flag(*names: str, help: str) -> Any:  # noqa: A002 (as typer calls it)
    """Return a flag: an option that takes no value, whose help names no type."""
    return typer.Option(*names, metavar="", help=help)


def given(**flags: Any) -> dict[str, Any]:
    """Return the flags that were given; paths become texts, as settings have them."""
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in flags.items() if value is not None
    }


@dataclass(frozen=True)
class OptionGroup:
    """Options that commands take together; a field is one option, whose name is the field's."""

    def given(self) -> dict[str, Any]:
        """Return the options that were given, by name."""
        return given(**vars(self))


@dataclass(frozen=True)
class DatasetOptions(OptionGroup):
    """Which data set is read, and how."""

    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How the images are read: folder (one folder per class), csv, … see `dmuh list --datasets`.",
        ),
    ] = None
    on_bad_image: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="At an image that cannot be read: fail (the default), or skip it."),
    ] = None
    path_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", rich_help_panel=_LIST, help="Column with the path of the image."),
    ] = None
    path_format: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            rich_help_panel=_LIST,
            help="Instead: the path made from columns, as {id}.jpg is from the column id.",
        ),
    ] = None
    label_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", rich_help_panel=_LIST, help="Column with the labels.")
    ] = None
    label_separator: Annotated[
        str | None,
        typer.Option(
            metavar="CHAR", rich_help_panel=_LIST, help="Character between two labels, a semicolon if not given."
        ),
    ] = None
    texts: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            rich_help_panel=_LIST,
            help="Column with a sentence about the image; several with ; between them. --dataset coco: captions.",
        ),
    ] = None


Sure = Annotated[
    int | None,
    typer.Option(min=0, max=2, metavar="N", help="Bits per bit that say how sure it is: 0, 1 (the default) or 2."),
]
Json = Annotated[bool, flag("--json", help="Print the result as JSON.")]
OnBadImage = Annotated[
    str | None,
    typer.Option(metavar="WHAT", help="At an image that cannot be read: fail (the default), or skip it."),
]
Data = Annotated[Path | None, typer.Option(metavar="PATH", help="Where the images of the run are, if they moved.")]
Engine = Annotated[
    str | None,
    typer.Option(
        "--index",
        metavar="MILVUS",
        help="Let Milvus search: milvus:FILE.db, or milvus:http://HOST:PORT of a server; behind it options, such as "
        "?kind=BIN_IVF_FLAT&probes=32: see the page on Milvus.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0, max=256, metavar="N", help="Processes that read images; if not given, chosen by images and cores."
    ),
]


def with_groups(command: Command) -> Callable[..., None]:
    """Return a command whose parameters of type OptionGroup are replaced by the options of the group, one by one."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type[OptionGroup]] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[parameter.name] = kind
            options = [(item.name, item.default, item.type) for item in fields(kind)]
        else:
            options = [(parameter.name, parameter.default, kind)]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, default, annotation in options
        ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        made = {
            name: group(**{item.name: values.pop(item.name) for item in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **made)

    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _show_plainly(parameters: list[Any]) -> list[Any]:
    """Have a help name no type where that says nothing: that of a flag, and of an argument, which its name explains."""
    for parameter in parameters:
        if isinstance(parameter, TyperOption) and parameter.is_flag:
            parameter.metavar = ""
        elif isinstance(parameter, TyperArgument):
            vars(parameter)["display_type_rich"] = lambda ctx: ""  # noqa: ARG005
    return parameters


class PlainCommand(TyperCommand):
    """A command whose help names no type of flags and arguments."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, as help and parser take them."""
        return _show_plainly(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """The same for the command that all others are below."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, as help and parser take them."""
        return _show_plainly(super().get_params(ctx))
