"""The text form of the IR: parsing and printing; `grammar/tfc.lark` is its reference."""

from tfc.text.parse import parse_file, parse_module
from tfc.text.print import print_module, print_op

__all__ = ["parse_file", "parse_module", "print_module", "print_op"]
