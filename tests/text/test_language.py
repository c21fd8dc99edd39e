"""The grammar is what the parser runs, and is made only when a text is parsed."""

from __future__ import annotations

import subprocess
import sys
import threading

import tfc.ops
from tfc.ir.core import OPS
from tfc.text import parse_module
from tfc.text.language import END, WORDS, language

assert tfc.ops


def test_import_leaves_the_heavy_parts_out() -> None:
    code = "import sys, tfc.text; print([m for m in ('lark', 'numpy') if m in sys.modules])"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"


def test_every_token_has_words_for_errors() -> None:
    kinds = {kind for row in language().actions.values() for kind in row if kind.isupper()}
    assert {k for k in kinds if not k.startswith("__")} | {END} == set(WORDS)


def test_keywords_of_regions_parse() -> None:
    """No op's keyword of a region means something else in the grammar."""
    for cls in OPS.values():
        for field in cls.region_fields:
            text = f"func @f(%x: tensor<f32>) {{ neg(%x) {field.keyword} {{ return }} return }}"
            try:
                parse_module(text)
            except Exception as error:
                assert "unexpected region" in str(error), field.keyword


def test_threads_parse_at_once() -> None:
    found: list[int] = []

    def work(count: int) -> None:
        body = "\n".join(["%a0 = neg(%x)", *(f"%a{i + 1} = neg(%a{i})" for i in range(count))])
        module = parse_module(f"func @f(%x: tensor<f32>) {{\n{body}\nreturn\n}}")
        found.append(len(module.main.body) - 2 - count)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(200, 1000, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [0] * len(threads)
