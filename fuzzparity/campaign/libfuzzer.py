"""LibFuzzer: libFuzzer's loop, by atheris, over the Python code of the model, with our mutators and our oracle.

The idea: libFuzzer knows nothing of tensors. What it keeps, cuts and prolongs are chains of steps, four bytes each,
which the generator turns into a case; what it learns from are the counters that atheris puts into the user's own
functions, so that a chain into a branch not seen before becomes a parent. Chains that it keeps lie beside the corpus,
where other workers and later campaigns read them.
"""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fuzzparity.campaign.records import Ready, WorkerSpec
from fuzzparity.campaign.worker import Turns, Worker
from fuzzparity.generate.generator import Proposal
from fuzzparity.sides.own_code import function_of, rank
from fuzzparity.work.loader import Context

FOLDER = "libfuzzer"  # beside the corpus
_MOST_STEPS = 12  # a longer chain is cut at its front
_STEP_BYTES = 4
_MOST_FUNCTIONS = 4096
_FLAGS = (
    # a death has to be a death: the parent reads the signal and the announced case
    *(f"-handle_{name}=0" for name in ("segv", "abrt", "bus", "ill", "fpe", "int", "term", "xfsz", "usr1", "usr2")),
    # time and memory are bounded by the parent and by the child's own limits
    *("-timeout=1000000000", "-rss_limit_mb=0", "-malloc_limit_mb=0", "-detect_leaks=0"),
    *("-use_value_profile=0", "-len_control=0", "-verbosity=0", "-print_final_stats=0"),
    f"-max_len={_MOST_STEPS * _STEP_BYTES}",
)


def serve(context: Context, spec: WorkerSpec) -> NoReturn:
    """Work through leases by libFuzzer's loop until the parent sends None; libFuzzer never returns."""
    import atheris

    worker = Worker(context, spec)
    count = instrument(context.loaded.module, atheris)
    chains = Path(spec.corpus_path).resolve().parent / FOLDER
    chains.mkdir(parents=True, exist_ok=True)
    note = f"libFuzzer counts branches of {count} functions of the target's own code"
    context.send(Ready("; ".join(text for text in (worker.note, note) if text)))
    seed = spec.rng_seed & 0x7FFFFFFF or 1  # 0 lets libFuzzer take the clock
    flags = ("fuzzparity", *_FLAGS, f"-seed={seed}", f"-artifact_prefix={chains}/", str(chains))
    loop = _Loop(context, worker)
    atheris.Setup(list(flags), loop.one, custom_mutator=mutated)
    atheris.Fuzz()
    context.end()


class _Loop:
    """Turn libFuzzer's calls into turns of a worker's leases."""

    def __init__(self, context: Context, worker: Worker) -> None:
        self._context = context
        self._worker = worker
        self._turns: Turns | None = None

    def one(self, data: bytes) -> None:
        """Run the case of a chain, and before it what earlier cases left to do."""
        try:
            self._one(data)
        except BaseException as error:  # libFuzzer would take it for a crash of what it runs
            self._context.fail(error)

    def _one(self, data: bytes) -> None:
        fresh: list[Proposal] = []

        def propose() -> Proposal:
            fresh.append(self._worker.generator.chained(steps_of(data)))
            return fresh[-1]

        while not fresh:
            self._next().turn(propose)

    def _next(self) -> Turns:
        """Return a lease with turns left, going through the sweep of classics as any worker does."""
        while self._turns is None or self._turns.is_over:
            if self._turns is not None:
                self._context.send(self._turns.done())
                self._turns = None
            lease = self._context.receive()
            if lease is None:
                self._context.end()
            if lease.sweep_from is not None:
                self._context.send(self._worker.work(lease))
            else:
                self._turns = self._worker.begin(lease)
        return self._turns


def steps_of(data: bytes) -> list[int]:
    """Return the steps of a chain; bytes beyond the last whole step are left out."""
    whole = len(data) // _STEP_BYTES * _STEP_BYTES
    return [int(step) for step in np.frombuffer(data[:whole], "<u4")]


def mutated(data: bytes, max_size: int, seed: int) -> bytes:
    """Return a neighbour of a chain: longer by a step most often, or with a step changed, dropped or swapped."""
    chance = random.Random(seed)
    steps = steps_of(data)
    draw = chance.random()
    if draw < 0.6 or len(steps) < 2:
        steps = [*(steps or [chance.getrandbits(32)]), chance.getrandbits(32)]
    elif draw < 0.8:
        steps[chance.randrange(len(steps))] = chance.getrandbits(32)
    elif draw < 0.9:
        del steps[chance.randrange(1, len(steps))]
    else:
        first, second = chance.randrange(len(steps)), chance.randrange(len(steps))
        steps[first], steps[second] = steps[second], steps[first]
    most = max(1, min(_MOST_STEPS, max_size // _STEP_BYTES))
    kept = [steps[0], *steps[1:][-(most - 1) :]] if most > 1 else steps[:1]
    return np.array(kept, "<u4").tobytes()


def instrument(module: Any, atheris: Any) -> int:
    """Put counters into the target's own functions, and return into how many.

    Comparisons are not traced: atheris keeps what each one gives, whole tensors included, for as long as it runs.
    """
    count = 0
    for function in _functions(module):
        if rank(function.__code__.co_filename) < 2 and count < _MOST_FUNCTIONS:
            function.__code__ = atheris.instrument_bytecode.patch_code(function.__code__, False)
            count += 1
    return count


def _functions(module: Any) -> Iterator[types.FunctionType]:
    """Yield the functions of a module's classes, of the files that these come from, and the callable itself."""
    parts = [module, *module.modules()] if hasattr(module, "modules") else [module]
    files = {type(part).__module__ for part in parts} | {getattr(module, "__module__", None)}
    holders = (*map(type, parts), *(sys.modules[name] for name in files if name in sys.modules))
    held = [value for holder in holders for value in list(vars(holder).values())]
    held += [value for kind in held if isinstance(kind, type) for value in list(vars(kind).values())]
    found = (function_of(value) for value in (*held, module))
    yield from dict.fromkeys(function for function in found if function is not None)
