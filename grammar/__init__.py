"""The language of `.tfc` files: `tfc.lark` is its reference, and what the parser runs."""
