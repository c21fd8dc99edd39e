"""What a pass is: a dataclass of options with a name, run on a module; and how its text is read.

Always holds: a pass leaves valid IR of the level that it promises, says truthfully whether it
changed the module, and talks to other passes only through the IR. A pass stands in the file of its
own name (`constant-folding` in `graph/constant_folding.py`), so that it is found without a list;
passes from elsewhere register when their file is loaded.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import pkgutil
import re
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tfc.ir.errors import TfcError
from tfc.ir.rewriting import RewriteContext

if TYPE_CHECKING:
    from tfc.ir.core import Module
    from tfc.targets import Target

FOLDERS = ("graph", "lower", "tile")
PASSES: dict[str, type[Pass]] = {}
"""The passes that are loaded, by name; `find_pass` loads those of this package on demand."""


@dataclass
class PassContext(RewriteContext):
    """What a pipeline shares: the count of rewrites, remarks, the target, each pass's figures."""

    target: Target | None = None
    strict: bool = False  # what is only unwise elsewhere is a mistake
    figures: dict[str, int | str] = field(default_factory=dict[str, "int | str"])

    def report(self, name: str, figure: int | str) -> None:
        """Records a figure of the running pass, such as a peak of memory, for `--statistics`."""
        self.figures[name] = figure


@dataclass(frozen=True)
class Pass:
    """A transformation of a module. Fields are its options, all with defaults.

    The docstring shows the IR `Before:` and `After:` it; a test runs that example.
    """

    name: ClassVar[str] = ""
    level: ClassVar[str] = "any"  # what it accepts: "graph", "tile" or "any"
    promises: ClassVar[str] = "any"  # what it leaves; "any" is the level that it got

    def run(self, module: Module, context: PassContext) -> bool:
        """Changes the module; whether it did."""
        raise NotImplementedError(f"{self.name} does not run")

    def __str__(self) -> str:
        """The text that `--pass-pipeline` reads; options at their defaults are left out."""
        options = [
            f"{kebab(f.name)}={_option_text(getattr(self, f.name))}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        ]
        return self.name + (f"{{{','.join(options)}}}" if options else "")

    @classmethod
    def summary(cls) -> str:
        """The first sentence of the docstring."""
        return (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")


def changes(outcomes: Iterable[bool]) -> bool:
    """Whether any is true. Unlike `any` it takes all of them, since each comes of a change."""
    return sum(outcomes) > 0


PassT = TypeVar("PassT", bound=type[Pass])


def register(name: str, *, level: str = "any", promises: str = "any") -> Callable[[PassT], PassT]:
    """Registers a pass by its name on the command line."""

    def decorate(cls: PassT) -> PassT:
        known = PASSES.get(name)
        assert known is None or known.__qualname__ == cls.__qualname__, f"pass {name} exists"
        assert all(f.default is not dataclasses.MISSING for f in dataclasses.fields(cls)), (
            f"each option of {name} needs a default"
        )
        cls.name, cls.level, cls.promises = name, level, promises
        PASSES[name] = cls
        return cls

    return decorate


def kebab(name: str) -> str:
    return name.replace("_", "-")


# ---- finding


def find_pass(name: str) -> type[Pass]:
    """The pass of a name, loaded from the file of that name where it is not loaded yet."""
    if name not in PASSES and re.fullmatch(r"[a-z][a-z0-9-]*", name):
        for folder in FOLDERS:
            module = f"tfc.passes.{folder}.{name.replace('-', '_')}"
            if importlib.util.find_spec(module) is not None:
                importlib.import_module(module)
    if name not in PASSES:
        raise TfcError(f"no pass is named {name!r}", hint=_nearest(name, list(all_passes())))
    return PASSES[name]


def all_passes() -> dict[str, type[Pass]]:
    """Every pass, sorted by name; loads the whole package."""
    for folder in FOLDERS:
        package = importlib.import_module(f"tfc.passes.{folder}")
        for entry in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"tfc.passes.{folder}.{entry.name}")
    return dict(sorted(PASSES.items()))


def _nearest(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, 3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(known)}" if known else "it takes no options"


# ---- options


def make_pass(name: str, options: dict[str, str]) -> Pass:
    """A pass with options given as text, read by the types of its fields."""
    cls = find_pass(name)
    hints = typing.get_type_hints(cls)
    fields = {kebab(f.name): f.name for f in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for key, text in options.items():
        if key not in fields:
            raise TfcError(f"{name} has no option {key!r}", hint=_nearest(key, list(fields)))
        try:
            values[fields[key]] = _read_option(hints[fields[key]], text)
        except ValueError as error:
            raise TfcError(f"{name}{{{key}={text}}}: {error}") from error
    return cls(**values)


def option_types(cls: type[Pass]) -> dict[str, str]:
    """The options of a pass as `name: type = default`, for listings."""
    hints = typing.get_type_hints(cls)
    return {
        kebab(f.name): f"{_type_name(hints[f.name])} = {_option_text(f.default)}"
        for f in dataclasses.fields(cls)
    }


def _read_option(kind: Any, text: str) -> Any:
    if isinstance(kind, types.UnionType):
        if text == "none":
            return None
        kind = next(k for k in typing.get_args(kind) if k is not types.NoneType)
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        listed = text[1:-1].split(",") if text.startswith("[") else text.split("+")
        return tuple(_read_option(item, part.strip()) for part in listed if part.strip())
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError("expected true or false")
        return text == "true"
    try:
        return kind(text)
    except ValueError:
        article = "an" if kind is int else "a"
        raise ValueError(f"expected {article} {kind.__name__}") from None


def _type_name(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        return f"{typing.get_args(kind)[0].__name__}+..."
    return str(kind) if isinstance(kind, types.UnionType) else kind.__name__


def _option_text(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(_option_text, typing.cast("tuple[Any, ...]", value)))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    text = str(value)
    return f'"{text}"' if re.search(r'[{},="\s]', text) else text
