"""The command line of a bundle: `./model.tfb --input x=@x.npy`, and of `tfc run model.tfb`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from . import load
from .errors import InputError, LoaderError, RunError
from .function import Function
from .index import TensorInfo
from .tensors import Array, storage_dtype

USER_ERROR = 2
_RUN_ERROR = 1

_SHAPED = re.compile(r"(?P<dims>(\d+x)*)(?P<type>[a-z]+\d*)(=(?P<values>.*))?", re.DOTALL)
_TYPE_NAMES = {"i1": "bool"} | {
    f"{sign}i{bits}": f"{ours}{bits}"
    for sign, ours in (("s", "i"), ("u", "u"))
    for bits in (8, 16, 32, 64)
}

_VALUES_HELP = """\
values of --input NAME=VALUE:
  @file.npy            an array that numpy saved
  3   1,2,3            numbers, of the input's type
  2x3xf32=1 2 3 4 5 6  numbers with shape and type; one number fills the tensor
  random               seeded; floats around 0, integers and booleans 0 or 1
  2x64xf32=random      the same, of a given shape

example: %(prog)s --input image=@image.npy --input n=3 --output-dir results
"""


def main(path: str, arguments: Sequence[str] | None = None) -> int:
    """Runs a function of the bundle at `path` and prints its outputs; returns the exit status."""
    options = _parser(path).parse_args(arguments)
    try:
        with load(
            path, threads=options.threads, target=options.target, folder=options.files
        ) as bundle:
            functions = [_function(bundle.functions, name) for name in options.function]
            functions = functions or [bundle.main]
            inputs = _inputs_of_all(
                functions, options.input, _dimensions(options.dim), options.seed
            )
            results = [f.run(given) for f, given in zip(functions, inputs, strict=True)]
            function, outputs = functions[-1], results[-1]
            if options.output_dir:
                save_outputs(outputs, options.output_dir)
            print_outputs(function.outputs, outputs)
    except RunError as error:
        return _report(error, _RUN_ERROR)
    except (LoaderError, OSError, MemoryError) as error:
        return _report(error, USER_ERROR)
    return 0


def _report(error: Exception, status: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return status


def _parser(path: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=os.path.basename(path),
        description="Runs a function of this bundle and prints its outputs.",
        epilog=_VALUES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--input", action="append", default=[], metavar="NAME=VALUE", help="see below")
    add("--dim", action="append", default=[], metavar="NAME=N", help="a size, for random inputs")
    add("--seed", type=int, default=0, help="of random inputs (default 0)")
    add("--output-dir", metavar="DIR", help="write each output to DIR/NAME.npy")
    add(
        "--function",
        action="append",
        default=[],
        metavar="NAME",
        help="the function to run (default main); several run in turn on the same variables",
    )
    add("--files", metavar="DIR", help="where readers and checkpoints have their files")
    add("--threads", type=_positive, metavar="N", help="default: all that the process may use")
    add("--target", metavar="NAME", help="the code to use (default: the best that runs here)")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _function(functions: Mapping[str, Function], name: str) -> Function:
    if name not in functions:
        raise InputError(f"there is no function {name!r}; the bundle has {', '.join(functions)}")
    return functions[name]


def _inputs_of_all(
    functions: Sequence[Function], options: Sequence[str], dims: Mapping[str, int], seed: int
) -> list[dict[str, Array]]:
    """The inputs of functions that run in turn; an option is for each that has such an input."""
    if len(functions) == 1:
        return [read_inputs(functions[0], options, dims, seed)]
    for option in options:
        if not any(_is_for(f, option) for f in functions):
            raise InputError(f"--input {option}: no function that runs has such an input")
    mine = [[o for o in options if _is_for(f, o)] for f in functions]
    return [read_inputs(f, o, dims, seed) for f, o in zip(functions, mine, strict=True)]


def _is_for(function: Function, option: str) -> bool:
    return any(option.startswith(f"{t.name}=") for t in function.inputs)


def _dimensions(options: Sequence[str]) -> dict[str, int]:
    dims: dict[str, int] = {}
    for option in options:
        name, equals, number = option.rpartition("=")
        if not equals or not number.isdecimal():
            raise InputError(f"--dim {option}: expected NAME=N, as in --dim batch_size=2")
        dims[name] = int(number)
    return dims


def read_inputs(
    function: Function, options: Sequence[str], dims: Mapping[str, int], seed: int
) -> dict[str, Array]:
    """The arrays that options like `x=@x.npy` describe."""
    generator = np.random.default_rng(seed)
    inputs: dict[str, Array] = {}
    for option in options:
        tensor, value = _split_option(function, option)
        if tensor.name in inputs:
            raise InputError(f'input "{tensor.name}" is given twice')
        inputs[tensor.name] = _read_value(tensor, value, dims, generator)
    return inputs


def _split_option(function: Function, option: str) -> tuple[TensorInfo, str]:
    """Names may hold `=` themselves: the longest that fits is meant."""
    fits = [t for t in function.inputs if option.startswith(t.name + "=")]
    if not fits:
        raise InputError(f"--input {option}: expected NAME=VALUE; {function.signature()}")
    tensor = max(fits, key=lambda t: len(t.name))
    return tensor, option[len(tensor.name) + 1 :]


def _read_value(
    tensor: TensorInfo, text: str, dims: Mapping[str, int], generator: np.random.Generator
) -> Array:
    if text.startswith("@"):
        return _read_file(tensor, text[1:])
    if text == "random":
        return _random(tensor.dtype, _random_shape(tensor, dims), generator)
    match = _SHAPED.fullmatch(text)
    if match is None or not _type_name(match["type"]):
        return _numbers(tensor, text, None)
    dtype = _type_name(match["type"])
    if dtype != tensor.dtype:
        raise InputError(f'input "{tensor.name}" is given as {dtype}, expected {tensor.dtype}')
    shape = tuple(int(size) for size in match["dims"].split("x")[:-1])
    if match["values"] == "random":
        return _random(dtype, shape, generator)
    return _numbers(tensor, "0" if match["values"] is None else match["values"], shape)


def _type_name(text: str) -> str:
    """In tfc's spelling; "" for what is no type."""
    name = _TYPE_NAMES.get(text, text)
    try:
        storage_dtype(name)
    except KeyError:
        return ""
    return name


def _read_file(tensor: TensorInfo, path: str) -> Array:
    try:
        value = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f'input "{tensor.name}": {path} is no .npy file: {error}') from error
    if not isinstance(value, np.ndarray):
        raise InputError(f'input "{tensor.name}": {path} holds several arrays, expected one')
    if tensor.dtype == "bf16" and value.dtype == np.dtype("V2"):
        return value.view(np.uint16)  # how numpy saves ml_dtypes' bfloat16
    return value


def _numbers(tensor: TensorInfo, text: str, shape: tuple[int, ...] | None) -> Array:
    words = re.sub(r"[\[\],;\s]+", " ", text).split()
    try:
        values = _parse_words(words, tensor.dtype)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f'input "{tensor.name}": {text!r} is not {tensor.dtype}: {error}'
        ) from None
    if shape is None:
        shape = _shape_of_words(tensor, len(words))
    count = int(np.prod(shape, dtype=object))
    if len(words) not in (1, count):
        raise InputError(
            f'input "{tensor.name}": {len(words)} numbers for a tensor of {count} elements'
        )
    return np.broadcast_to(values.reshape(shape if len(words) == count else ()), shape).copy()


def _parse_words(words: Sequence[str], dtype: str) -> Array:
    if dtype == "bool":
        truth = {"0": False, "1": True, "false": False, "true": True}
        if any(word.lower() not in truth for word in words):
            raise ValueError("expected 0, 1, true or false")
        return np.array([truth[word.lower()] for word in words], np.bool_)
    if dtype == "bf16":
        return _round_to_bf16(np.array([float(word) for word in words], np.float32))
    numpy_type = storage_dtype(dtype)
    if numpy_type.kind == "f":
        return np.array([float(word) for word in words], numpy_type)
    return np.array([int(word, 0) for word in words], numpy_type)


def _round_to_bf16(values: Array) -> Array:
    """The bits of the nearest bfloat16, ties to even."""
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def _shape_of_words(tensor: TensorInfo, count: int) -> tuple[int, ...]:
    """The input's own shape, where one unknown size at most follows from the number of words."""
    known = [d for d in tensor.dims if isinstance(d, int)]
    product = int(np.prod(known, dtype=object)) if known else 1
    if len(known) == len(tensor.dims):
        return tuple(known)
    if len(known) == len(tensor.dims) - 1 and product and count % product == 0:
        return tuple(d if isinstance(d, int) else count // product for d in tensor.dims)
    raise InputError(
        f'input "{tensor.name}" has the shape [{", ".join(map(str, tensor.dims))}]: give it with '
        f"the numbers, as in {tensor.name}=2x3x{tensor.dtype}=1 2 3 4 5 6"
    )


def _random_shape(tensor: TensorInfo, dims: Mapping[str, int]) -> tuple[int, ...]:
    missing = [d for d in tensor.dims if isinstance(d, str) and d not in dims]
    if missing:
        raise InputError(
            f'input "{tensor.name}": for random values say how large {missing[0]} is: '
            f'--dim "{missing[0]}=2", or {tensor.name}=2x3x{tensor.dtype}=random'
        )
    return tuple(d if isinstance(d, int) else dims[d] for d in tensor.dims)


def _random(dtype: str, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    if dtype == "bf16":
        return _round_to_bf16(generator.standard_normal(shape, np.float32))
    numpy_type = storage_dtype(dtype)
    if numpy_type.kind == "f":
        return generator.standard_normal(shape).astype(numpy_type)
    return generator.integers(0, 2, shape).astype(numpy_type)


def print_outputs(tensors: Sequence[TensorInfo], outputs: Mapping[str, Array]) -> None:
    """Name, type, shape and abbreviated values of each output."""
    for tensor in tensors:
        value = outputs[tensor.name]
        print(f"{tensor.name}: {tensor.dtype}[{', '.join(map(str, value.shape))}]")
        print(np.array2string(_printable(value, tensor.dtype), threshold=100, edgeitems=4))


def _printable(value: Array, dtype: str) -> Array:
    if dtype != "bf16":
        return value
    return (value.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def save_outputs(outputs: Mapping[str, Array], directory: str) -> None:
    """One .npy file an output; what cannot stand in a file's name becomes `_`."""
    os.makedirs(directory, exist_ok=True)
    taken: set[str] = set()
    for name, value in outputs.items():
        stem = re.sub(r"[^\w.+-]", "_", name).lstrip(".") or "_"
        while stem in taken:
            stem += "_"
        taken.add(stem)
        np.save(os.path.join(directory, f"{stem}.npy"), value, allow_pickle=False)
