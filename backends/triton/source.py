"""What the printer makes of a kernel: the text, and what a launch of it needs to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfc.ir.core import Kernel
from tfc.ir.errors import TfcError
from tfc.ir.expr import Dim, Expr, as_expr

LIMIT = (1 << 31) - (1 << 22)  # what 32-bit indices reach, less what tiles hang over at the end


@dataclass(frozen=True)
class Argument:
    """A parameter of a kernel and its type in Triton's signature: `*fp32`, `i32`."""

    name: str
    type: str


@dataclass(frozen=True)
class ErrorSite:
    """A check of indices: the user's node, and the size of the axis. Number k writes to errors[2k :
    2k + 2] a flag and an index that is wrong.
    """

    node: str
    size: Dim


@dataclass(frozen=True)
class Source:
    """The Triton source of one kernel.

    Arguments are the buffers, the symbols in order, and `errors` (an i64 buffer, zero at first, two
    elements a site) if there are sites. `grid` is the number of programs along Triton's axes.
    `limits` are sizes that must stay below `LIMIT`. `origin` names the user's nodes.
    """

    name: str
    imports: tuple[str, ...]
    helpers: tuple[str, ...]
    function: str
    arguments: tuple[Argument, ...]
    grid: tuple[Dim, Dim, Dim]
    sites: tuple[ErrorSite, ...] = ()
    limits: tuple[Expr, ...] = ()
    warps: int = 4
    stages: int = 3
    origin: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The whole file."""
        return file_text([self])

    @property
    def body(self) -> str:
        """The helpers and the kernel, without what they import."""
        return _BETWEEN.join([*self.helpers, self.function]) + "\n"

    @property
    def note(self) -> str:
        """A comment on how the kernel is launched and where it came from."""
        grid = " x ".join(str(n) for n in self.grid)
        launch = f"# grid {grid}, num_warps={self.warps}, num_stages={self.stages}"
        return f"{launch}\n# from {', '.join(self.origin)}" if self.origin else launch

    def programs(self, symbols: Mapping[str, int]) -> tuple[int, int, int]:
        """The launch grid for values of the symbols. Raises TfcError where sizes are beyond 32-bit
        indices.
        """
        for size in self.limits:
            n = size.evaluate(symbols)
            if n >= LIMIT:
                raise TfcError(
                    f"{size} is {n}, too large for 32-bit indices",
                    where=f"kernel @{self.name}",
                    hint="compile with 64-bit indices",
                )
        x, y, z = (max(0, as_expr(n).evaluate(symbols)) for n in self.grid)
        return x, y, z

    def check(self, errors: list[int], symbols: Mapping[str, int]) -> None:
        """Raises TfcError if the error buffer says that an index was out of range."""
        for number, site in enumerate(self.sites):
            if errors[2 * number]:
                size = as_expr(site.size).evaluate(symbols)
                raise TfcError(
                    f"index {errors[2 * number + 1]} is out of range of an axis of {size}",
                    where=site.node or f"kernel @{self.name}",
                )


_BETWEEN = "\n\n\n"


def file_text(sources: Sequence[Source]) -> str:
    """One file of several kernels, which share imports and helpers."""
    imports = dict.fromkeys(line for s in sources for line in s.imports)
    helpers = dict.fromkeys(text for s in sources for text in s.helpers)
    kernels = [f"{s.note}\n{s.function}" for s in sources]
    return _BETWEEN.join(["\n".join(imports), *helpers, *kernels]) + "\n"


def is_wide(kernel: Kernel) -> bool:
    """Whether a buffer of static size is beyond 32-bit indices."""
    sizes = [as_expr(a.buffer.elements).constant for a in kernel.body.args]
    return any(n is not None and n >= LIMIT for n in sizes)


def limits_of(kernel: Kernel, grid: tuple[Dim, Dim, Dim]) -> tuple[Expr, ...]:
    """The symbolic sizes that must stay within 32 bits."""
    sizes = [*(a.buffer.elements for a in kernel.body.args), grid[0]]
    return tuple(dict.fromkeys(n for n in sizes if isinstance(n, Expr)))
