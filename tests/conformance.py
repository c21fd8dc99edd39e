"""Runs onnx's backend tests, and folders of cases like them, interpreted or as compiled code.

    python -m tests.conformance [--interpreter | --compiled] [--jobs 2] [--only REGEX] [--bank DIR]

Each case ends in one verdict: it passes, is refused by name (UnsupportedError), is wrong, fails
(any other error), crashes the process, or does not end in time. Cases run in child processes, many
in each; a child that dies or hangs is replaced, and the case that it was at gets the blame.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.farm import Farm, Outcome

Arrays = list[Any]
Engine = Callable[[Path, Path], Callable[[Arrays], Arrays]]
"""Takes a model and a folder to work in, gives a function of arrays."""

VERDICTS = ("pass", "refused", "wrong", "error", "crash", "timeout")
BAD = VERDICTS[2:]
HALF_SLACK = 4  # interpreter and -O0, -O1 round 16-bit floats after each op, the tests after some


@dataclass
class DataSet:
    """Inputs, and what should come out; where a mask is given, only its elements are compared."""

    inputs: Arrays
    outputs: Arrays
    masks: list[Any] = field(default_factory=list[Any])


@dataclass
class Case:
    """A model with data; `expect`: `values`, `refuse`, or either."""

    name: str
    model: bytes | Path
    sets: list[DataSet]
    rtol: float = 1e-3
    atol: float = 1e-7
    expect: str = "values"
    options: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    half_slack: int = 1  # by how much tolerances of 16-bit floats are larger


# ---- the cases


def onnx_cases() -> list[Case]:
    """All of onnx's backend tests, from the installed package."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [generated_case(test) for test in load_model_tests(kind="node")]
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        cases += [stored_case(Path(test.model_dir), kind) for test in load_model_tests(kind=kind)]
    return cases + light_cases()


def data_folder() -> Path:
    """Where the package keeps the models and tensors of its tests."""
    import onnx.backend.test

    return Path(onnx.backend.test.__file__).parent / "data"


def generated_case(test: Any) -> Case:
    """A test that the package made in memory."""
    sets = [DataSet(_plain(i), _plain(o)) for i, o in test.data_sets]
    return Case(f"node/{test.name}", test.model.SerializeToString(), sets, test.rtol, test.atol)


def _plain(values: Sequence[Any]) -> Arrays:
    from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper

    convert = {
        TensorProto: numpy_helper.to_array,
        SequenceProto: numpy_helper.to_list,
        OptionalProto: numpy_helper.to_optional,
    }
    return [convert.get(type(v), lambda v: v)(v) for v in values]


def stored_case(folder: Path, kind: str) -> Case:
    """A test that lies in a folder of the package: a model and files of tensors beside it."""
    import onnx

    graph = onnx.load(str(folder / "model.onnx")).graph
    sets = [
        DataSet(_stored(data, "input", graph.input), _stored(data, "output", graph.output))
        for data in sorted(folder.glob("test_data_set_*"))
    ]
    return Case(f"{kind}/{folder.name}", folder / "model.onnx", sets)


def _stored(folder: Path, kind: str, infos: Sequence[Any]) -> Arrays:
    from onnx import OptionalProto, SequenceProto, TensorProto

    kinds = {"sequence_type": SequenceProto, "optional_type": OptionalProto}
    count = len(list(folder.glob(f"{kind}_*.pb")))
    values: Arrays = []
    for place, info in zip(range(count), infos, strict=False):
        proto = kinds.get(info.type.WhichOneof("value"), TensorProto)()
        proto.ParseFromString((folder / f"{kind}_{place}.pb").read_bytes())
        values.append(proto)
    return _plain(values)


def light_cases() -> list[Case]:
    """The networks whose weights are made when they run; their input counts up from 0 to 1."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    top = Path(onnx.__file__).resolve().parent.parent
    cases: list[Case] = []
    for test in load_model_tests(kind="real"):
        path = top / test.url
        graph = onnx.load(str(path)).graph
        own = {tensor.name for tensor in graph.initializer}
        inputs = [_counting(info) for info in graph.input if info.name not in own]
        outputs = [
            onnx.TensorProto.FromString((path.parent / f"{path.stem}_output_{i}.pb").read_bytes())
            for i in range(len(graph.output))
        ]
        data = DataSet(inputs, _plain(outputs))
        cases.append(Case(f"light/{test.name}", path, [data], test.rtol, test.atol))
    return cases


def _counting(info: Any) -> Any:
    dims = info.type.tensor_type.shape.dim
    shape = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in dims]
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def bank_cases(bank: Path) -> list[Case]:
    """Folders with `model.onnx`, `case.json`, and arrays as `.npy` with dtype and shape beside."""
    return [_bank_case(file.parent) for file in sorted(bank.glob("*/case.json"))]


def _bank_case(folder: Path) -> Case:
    about = json.loads((folder / "case.json").read_text())
    options: dict[str, dict[str, Any]] = about.get("compare", {})
    inputs = [_array(folder, f"input_{i}") for i in range(about["inputs"])]
    outputs = [_array(folder, f"output_{i}") for i in range(about["outputs"])]
    names = [options.get(str(i), {}).get("mask") for i in range(about["outputs"])]
    masks = [_array(folder, name) if name else None for name in names]
    tolerances = about["rtol"], about["atol"]
    sets = [DataSet(inputs, outputs, masks)]
    case = Case(f"bank/{folder.name}", folder / "model.onnx", sets, *tolerances)
    case.expect, case.options = about["expect"], options
    return case


def _array(folder: Path, stem: str) -> Any:
    import ml_dtypes

    about = json.loads((folder / f"{stem}.json").read_text())
    array = np.load(folder / f"{stem}.npy")
    wanted = about["dtype"]
    dtype = np.dtype(getattr(ml_dtypes, wanted, wanted))
    return (array if array.dtype == dtype else array.view(dtype)).reshape(about["shape"])


# ---- the engines


def interpreted(model: Path, folder: Path) -> Callable[[Arrays], Arrays]:
    from tfc.importers.onnx import import_onnx
    from tfc.interpret import interpret

    del folder
    module = import_onnx(model)
    names = [arg.name for arg in module.main.body.args]
    return lambda arrays: list(interpret(module, named(names, arrays)).values())


def compiled(opt_level: int, target: str) -> Engine:
    """An engine that compiles to a bundle and runs that."""

    def engine(model: Path, folder: Path) -> Callable[[Arrays], Arrays]:
        from tfc.driver import compile as compile_model
        from tfc.runtime import load

        bundle = folder / "model.tfb"
        compile_model(model, bundle, target=target, opt_level=opt_level)
        loaded = load(bundle)
        names = [info.name for info in loaded.inputs]
        return lambda arrays: list(loaded.run(named(names, arrays)).values())

    return engine


def named(names: Sequence[str], arrays: Arrays) -> dict[str, Any]:
    assert len(names) == len(arrays), f"{len(arrays)} arrays for the inputs {', '.join(names)}"
    return dict(zip(names, arrays, strict=True))


# ---- one case


def run_case(case: Case, engine: Engine, folder: Path) -> Outcome:
    """Runs a case in this process, with files in a folder of its own."""
    folder.mkdir(parents=True)
    return Outcome(case.name, *_verdict(case, engine, placed(case, folder), folder))


def placed(case: Case, folder: Path) -> Path:
    """The file of a case's model, written to a folder if there is none."""
    if isinstance(case.model, Path):
        return case.model
    path = folder / "model.onnx"
    path.write_bytes(case.model)
    return path


def _verdict(case: Case, engine: Engine, path: Path, folder: Path) -> tuple[str, str]:
    from tfc.ir.errors import TfcError, UnsupportedError
    from tfc.passes.manager import PassFailure
    from tfc.runtime.errors import InputError, RunError

    try:
        run = engine(path, folder)
        found = [w for data in case.sets if (w := wrong(case, data, run))]
    except UnsupportedError as error:
        return ("pass" if case.expect == "refuse" else "refused"), str(error)
    except (TfcError, InputError, RunError) as error:
        legal = case.expect != "values" and not isinstance(error, PassFailure)
        return ("pass" if legal else "error"), f"{type(error).__name__}: {error}"
    except Exception:
        return "error", traceback.format_exc(limit=-3)
    if case.expect == "refuse":
        return "wrong", "it must be refused"
    return ("wrong", found[0]) if found else ("pass", "")


def wrong(case: Case, data: DataSet, run: Callable[[Arrays], Arrays]) -> str:
    """What is wrong about the outputs of a function; empty where they are right."""
    given = [np.array(a) if isinstance(a, np.ndarray) else a for a in data.inputs]
    found = run(given)
    for before, after in zip(data.inputs, given, strict=True):
        if isinstance(before, np.ndarray) and before.tobytes() != after.tobytes():
            return "an input was written to"
    if len(found) != len(data.outputs):
        return f"{len(found)} outputs, not {len(data.outputs)}"
    masks = data.masks or [None] * len(found)
    for place, (array, wanted, mask) in enumerate(zip(found, data.outputs, masks, strict=True)):
        options = case.options.get(str(place), {})
        slack = case.half_slack if _is_half(wanted) else 1
        limits = options.get("rtol", case.rtol) * slack, options.get("atol", case.atol) * slack
        if message := difference(array, wanted, *limits, mask):
            return f"output {place}: {message}"
    return ""


def difference(found: Any, wanted: Any, rtol: float, atol: float, mask: Any = None) -> str:
    """Where two arrays differ, in words: floats beyond the tolerances, all else at all."""
    if not isinstance(wanted, np.ndarray | np.generic):
        return f"a {type(wanted).__name__} is wanted"
    wanted = np.asarray(wanted)
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    same = _close(found, wanted, rtol, atol) if _is_float(wanted.dtype) else found == wanted
    same = np.asarray(same | ~mask.astype(bool) if mask is not None else same)
    if same.all():
        return ""
    place = tuple(int(i) for i in np.argwhere(~same)[0])
    count = f"{int((~same).sum())} of {same.size} differ"
    return f"{list(place)} is {found[place]}, not {wanted[place]} ({count})"


def _is_half(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.itemsize == 2 and _is_float(array.dtype)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def _close(found: Any, wanted: Any, rtol: float, atol: float) -> Any:
    if wanted.dtype.name == "bfloat16":
        rtol = max(rtol, 2.0**-6)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= atol + rtol * np.abs(b))
        return near | (a == b) | (np.isnan(a) & np.isnan(b))


# ---- many cases


def run_cases(
    cases: Sequence[Case], engine: Engine, *, jobs: int = 2, timeout: float = 120.0
) -> Iterator[Outcome]:
    """The outcomes of cases, as they come."""

    def work(index: int, folder: Path) -> Outcome:
        return run_case(cases[index], engine, folder)

    return Farm([case.name for case in cases], work, jobs=jobs, timeout=timeout).run()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    cases = bank_cases(options.bank) if options.bank else []
    cases += [] if options.no_onnx else onnx_cases()
    cases = [case for case in cases if re.search(options.only, case.name)]
    engine = compiled(options.opt_level, options.target) if options.compiled else interpreted
    if engine is interpreted or options.opt_level < 2:
        for case in cases:
            case.half_slack = HALF_SLACK
    print(f"{len(cases)} cases", flush=True)
    outcomes: list[Outcome] = []
    for outcome in run_cases(cases, engine, jobs=options.jobs, timeout=options.timeout):
        outcomes.append(outcome)
        if outcome.verdict in BAD or (options.show_refused and outcome.verdict == "refused"):
            print(f"{outcome.verdict}: {outcome.name}: {outcome.message}", flush=True)
    _summarise(outcomes, options.slowest)
    return int(any(outcome.verdict in BAD for outcome in outcomes))


def _summarise(outcomes: Sequence[Outcome], slowest: int) -> None:
    for family in sorted({outcome.name.split("/")[0] for outcome in outcomes}):
        verdicts = [o.verdict for o in outcomes if o.name.startswith(f"{family}/")]
        _count(family, verdicts)
    _count("all", [outcome.verdict for outcome in outcomes])
    for outcome in sorted(outcomes, key=lambda o: -o.seconds)[:slowest]:
        print(f"  {outcome.seconds:6.2f} s {outcome.name}")


def _count(family: str, verdicts: Sequence[str]) -> None:
    counts = collections.Counter(verdicts)
    shown = ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v] or v in VERDICTS[:3])
    print(f"{family}: {len(verdicts)} cases: {shown}")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--interpreter", action="store_true", help="the default")
    how.add_argument("--compiled", action="store_true")
    parser.add_argument("--opt-level", "-O", type=int, default=3)
    parser.add_argument("--target", default="host")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name it matches")
    parser.add_argument("--bank", type=Path, metavar="DIR", help="a folder of cases to run as well")
    parser.add_argument("--no-onnx", action="store_true", help="only those of --bank")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for a case")
    parser.add_argument("--show-refused", action="store_true")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="show the slowest N")
    return parser


if __name__ == "__main__":
    sys.exit(main())
