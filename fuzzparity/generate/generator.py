"""Generator: proposes cases, first a fixed sweep of classics and then random recipes, and learns from what they show.

The idea: everything follows from `rng_seed`, the lease and the feedback; costs are counted in elements, never in
seconds. A recipe is one to three mutators on a parent from the pool; a small share leaves the contract on purpose or
plants NaN and infinities, the rest is confined to the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from fuzzparity.case import Array, Case, Lineage
from fuzzparity.contract import Contract
from fuzzparity.errors import InvalidCase
from fuzzparity.generate.bandit import Efforts, Weighed
from fuzzparity.generate.breaking import breaking_steps
from fuzzparity.generate.contract import Valid, breach
from fuzzparity.generate.moves import region_of
from fuzzparity.generate.mutators import mutators_for
from fuzzparity.generate.pool import SEEDS, Entry, Pool
from fuzzparity.generate.relations import Rule
from fuzzparity.generate.rng import Rng
from fuzzparity.generate.roles import disorders, ordered, related
from fuzzparity.generate.rows import Stack, stacker_for
from fuzzparity.generate.scene import Scene
from fuzzparity.generate.sweep import Step, sweep

CONTRACT_BREAKING_SHARE = 0.03
NONFINITE_SHARE = 0.10
_NEAR_SHARE = 0.15  # recipes that stay close to a seed
_DEFAULT_ELEMENTS = 1 << 20
_MAX_CASE_BYTES = 64 << 20
_TRIES = 24  # drafts per proposal before a repeated case is accepted
_REMEMBERED = 1 << 16  # digests of recent small cases
_SMALL_BYTES = 4096  # above this a repetition is unlikely and a digest dear
_SWEEP_SEEDS = 4  # seeds that the sweep takes turns with
_USUAL_SEEDS = 4  # a case of up to so many median seeds is of usual size
_USUAL_ELEMENTS = 8192
_LARGE_TIMES = 4  # the median seed's elements, from which a case is a large one
_INTERLEAVED_SHARE = 1 / 8  # of large cases that run again, a seed between
_LARGE_SHARE = 1 / 16  # of the largest drafts that get through
_REWEIGH = 256  # proposals between two looks at which mutators pay


@dataclass(frozen=True, slots=True)
class Proposal:
    """Hold a case to run. `label`: "sweep", "near", "recipe", "nonfinite" or "breaking"."""

    case: Case
    lineage: Lineage
    label: str
    contract_breaking: bool = False
    nonfinite: bool = False
    family: str = ""  # of signals, that lent the parent


class Generator:
    """Propose cases inside a contract (but for a small share) and keep those that show something new."""

    def __init__(
        self,
        contract: Contract,
        seeds: Sequence[Case],
        rng_seed: int,
        *,
        max_elements: int | None = None,
        max_bytes: int = _MAX_CASE_BYTES,
        max_pool_entries: int = 2048,
        max_pool_bytes: int = 256 << 20,
        valid: Valid | None = None,
    ) -> None:
        """Read contract and seeds; InvalidCase when there is no seed that fits the contract's names and ranks."""
        if not seeds:
            raise InvalidCase("no seed was given; generation starts from at least one, give the target's inputs")
        largest = max(seed.elements for seed in seeds)
        largest_bytes = max(seed.nbytes for seed in seeds)
        self._scene = Scene(
            contract,
            seeds,
            max_elements=max_elements or max(4 * largest, _DEFAULT_ELEMENTS),
            max_bytes=max(max_bytes, largest_bytes),
        )
        median = sorted(seed.elements for seed in seeds)[len(seeds) // 2]
        self._usual_elements = max(_USUAL_SEEDS * median, _USUAL_ELEMENTS)
        self._large_elements = max(_LARGE_TIMES * median, _LARGE_TIMES)
        self._owed: list[tuple[Proposal, Case, str]] = []  # parent, case and label of what comes next
        self._contract = contract
        self._valid = valid
        self._rng_seed = rng_seed
        entries = [self._entry(arrays) for arrays in self._scene.seeds]
        reasons = [breach(contract, entry.case) for entry in entries]
        if all(reasons):
            reason = reasons[0] if reasons else "an index input has nothing to point at"
            raise InvalidCase(
                f"no seed can be brought inside the contract: {reason}; widen the contract or fix the seeds"
            )
        entries = [entry for entry, reason in zip(entries, reasons, strict=True) if not reason]
        self._pool = Pool(entries, max_pool_entries, max_pool_bytes)
        self._mutators = mutators_for(self._scene)
        self._near = tuple(mutator for mutator in self._mutators if mutator.family == "near")
        self._breaks = list(breaking_steps(self._scene))
        self._disorders = list(disorders(self._scene))
        self._plants = [(index, fill) for index, fills in enumerate(self._scene.nonfinite) for fill in fills]
        self._moves = Weighed(self._mutators)
        self._first_moves = Weighed(self._mutators)  # as they were before anything was learned
        self._seen: set[str] = set()
        self._sweep: list[Step] | None = None
        self._sweep_position = 0
        self._sequence = -1
        self._lease = -1
        self._patience = _TRIES
        self._rng = Rng(rng_seed, 0)
        self.stacker = stacker_for(self._scene, self._pool, self._usual_elements, valid)

    def _entry(self, arrays: list[Array]) -> Entry:
        case = self._scene.case(arrays)
        return Entry(case, arrays, is_seed=True, is_finite=case.is_finite)

    @property
    def sweep_position(self) -> int | None:
        """Return the next step of the sweep, for `begin(sweep_from=...)` of a worker that goes on; None when done."""
        return None if self._sweep is None else self._sweep_position

    @property
    def pool(self) -> Pool:
        """Return the pool, for statistics and tests."""
        return self._pool

    def begin(
        self, lease: int, known: Iterable[str] = (), *, sweep_from: int | None = None, sequence: int | None = None
    ) -> None:
        """Start a lease: reseed chance, and count features that other workers `known`ly showed.

        Lease 0 starts the sweep; an unfinished sweep goes on in this generator's later leases, or in another one's by
        `sweep_from`. `sequence` is the place of the next case in the campaign's stream.
        """
        self._lease = lease
        self._rng = Rng(self._rng_seed, lease)
        self._pool.begin()
        self._owed.clear()
        self._pool.note(feature for feature in known if feature not in self._pool.hits)
        if sequence is not None:
            self._sequence = sequence - 1
        if sweep_from is not None or lease == 0:
            self._sweep = list(islice(sweep(self._scene), sweep_from or 0, None))
            self._sweep_position = sweep_from or 0
            self._sweep.reverse()

    def propose(self) -> Proposal:
        """Return the next case to run."""
        assert self._lease >= 0, "begin a lease first"
        if self._owed:
            parent, case, label = self._owed.pop()
            return self.following(parent, case, ("between large cases",), label)
        self._sequence += 1
        if self._sequence % _REWEIGH == _REWEIGH - 1:
            self._moves.reweigh(self._rng)
            if self.stacker is not None:
                self.stacker.maker.reweigh(self._rng)
        with np.errstate(all="ignore"):
            while self._sweep:
                made = self._next_step()
                if made is not None and self._is_inside(made) and self._is_new(made):
                    return made
            return self._paying(self._new_recipe(self._label()))

    def _paying(self, made: Proposal) -> Proposal:
        """Count what a recipe costs: one execution, or as many of usual size as it is larger."""
        cost = max(1.0, made.case.elements / self._usual_elements)
        for name in dict.fromkeys(made.lineage.mutators):
            self._moves.arms.tried(name, cost)
        self._pool.parents.tried(made.family, cost)
        is_large = made.case.elements >= self._large_elements and not made.contract_breaking
        if is_large and self._rng.chance(_INTERLEAVED_SHARE):
            # large, small, large: what one run leaves behind in a session may change the next
            self._owed = [(made, made.case, made.label), (made, self._pool.seeds[0].case, "near")]
        return made

    def _new_recipe(self, label: str) -> Proposal:
        """Return a recipe that was not proposed lately; one that was, or a seed, when patience ends."""
        fallback: Proposal | None = None
        for _ in range(self._patience):
            made = self._break() if label == "breaking" else self._mixed(label)
            if made is None or not self._is_inside(made):
                continue
            fallback = made
            if self._is_new(made):
                self._patience = _TRIES
                return made
        self._patience = max(2, self._patience // 2)  # a target whose few cases are all tried must not cost more
        return fallback or self._seed_itself()

    def _label(self) -> str:
        draw = self._rng.unit()
        if draw < CONTRACT_BREAKING_SHARE and (self._breaks or self._disorders):
            return "breaking"
        if draw < CONTRACT_BREAKING_SHARE + NONFINITE_SHARE and self._plants:
            return "nonfinite"
        return "near" if self._near and self._rng.chance(_NEAR_SHARE) else "recipe"

    def _is_inside(self, made: Proposal) -> bool:
        """Apply the target's own `valid`; what breaks the contract on purpose is not asked."""
        if self._valid is None or made.contract_breaking:
            return True
        return not breach(self._contract, made.case, self._valid)

    def _is_new(self, made: Proposal) -> bool:
        if made.case.nbytes > _SMALL_BYTES and made.label != "sweep":
            return True
        if made.case.digest in self._seen:
            return False
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen.add(made.case.digest)
        return True

    def _is_unseen(self, made: Proposal) -> bool:
        return made.case.nbytes > _SMALL_BYTES or made.case.digest not in self._seen

    def _seed_itself(self) -> Proposal:
        return self._proposal(self._pool.seeds[0].arrays, (self._pool.seeds[0],), (), "recipe")

    def _proposal(
        self, arrays: Sequence[Array], parents: Sequence[Entry], names: tuple[str, ...], label: str, family: str = ""
    ) -> Proposal:
        case = self._scene.case(arrays)
        lineage = self._lineage(parents, names, self._sequence)
        return Proposal(case, lineage, label, nonfinite=label != "near" and not case.is_finite, family=family)

    def _lineage(self, parents: Sequence[Entry], names: tuple[str, ...], sequence: int) -> Lineage:
        return Lineage(
            parents=tuple(dict.fromkeys(parent.case.digest for parent in parents)),
            mutators=names,
            rng_seed=self._rng_seed,
            lease=self._lease,
            sequence=sequence,
        )

    # Stacks and rows of them

    @property
    def is_sweeping(self) -> bool:
        """Tell whether the sweep is still going on here."""
        return self._sweep is not None

    @property
    def next_sequence(self) -> int:
        """Return the place in the campaign's stream that the next proposal will have."""
        return self._sequence + 1

    def stack(self, most_rows: Mapping[str, int]) -> Stack | None:
        """Return a stack of up to `most_rows` rows by label, the next proposal of the stream; None where none fits."""
        assert self.stacker is not None
        lineage = self._lineage((), ("stack",), self._sequence + 1)
        stack = self.stacker.stack(self._rng, most_rows, lineage)
        if stack is not None:
            self._sequence += 1
            self._pool.parents.tried(stack.family)
        return stack

    def alone(self, case: Case, stack: Stack, names: tuple[str, ...]) -> Proposal:
        """Return the proposal that runs rows of a stack again, in a smaller case: the next one of the stream."""
        self._sequence += 1
        lineage = replace(stack.lineage, mutators=names, sequence=self._sequence, lease=self._lease)
        return Proposal(case, lineage, stack.label, nonfinite=not case.is_finite, family=stack.family)

    def following(self, parent: Proposal, case: Case, names: tuple[str, ...], label: str) -> Proposal:
        """Return the proposal of a case that goes on from another one: the next one of the stream."""
        self._sequence += 1
        lineage = Lineage(
            parents=(parent.case.digest,),
            mutators=names,
            rng_seed=self._rng_seed,
            lease=self._lease,
            sequence=self._sequence,
        )
        return Proposal(case, lineage, label, nonfinite=not case.is_finite)

    def chained(self, steps: Sequence[int]) -> Proposal:
        """Return the case that a chain makes of a seed, the next one of the stream: `steps` are 32-bit numbers.

        The first one chooses the seed, each further one draws a mutator and its choices from itself alone, so that an
        engine of its own can hold, cut and prolong chains in the place of cases.
        """
        self._sequence += 1
        seeds = self._pool.seeds
        parent = seeds[steps[0] % len(seeds)] if steps else seeds[0]
        draft: list[Array] = list(parent.arrays)
        names: list[str] = []
        with np.errstate(all="ignore"):
            for step in steps[1:]:
                rng = Rng(self._rng_seed, step)
                mutator = self._first_moves.pick(rng)
                moved = mutator.move(self._scene, draft, rng.pick(seeds).arrays, rng)
                if moved is not None:
                    draft, names = moved, [*names, mutator.name]
            settled = self._scene.settle(ordered(self._scene, draft), keep_nonfinite=False)
            made = None if settled is None else self._proposal(settled, (parent,), tuple(names), "recipe")
        return made if made is not None and self._is_inside(made) else self._seed_itself()

    # The sweep

    def _next_step(self) -> Proposal | None:
        assert self._sweep
        step = self._sweep.pop()
        self._sweep_position += 1
        parent = self._pool.seeds[self._sweep_position % min(_SWEEP_SEEDS, len(self._pool.seeds))]
        if not self._sweep:
            self._sweep = None
        draft = step.build(parent.arrays)
        if draft is None:
            return None
        if step.breaking:
            return self._broken(draft, parent, step.names, "sweep", is_declared=not step.disorders)
        settled = self._scene.settle(ordered(self._scene, draft), keep_nonfinite=step.nonfinite)
        return None if settled is None else self._proposal(settled, (parent,), step.names, "sweep")

    def _broken(
        self, draft: list[Array], parent: Entry, names: tuple[str, ...], label: str, *, is_declared: bool = True
    ) -> Proposal | None:
        """Return a case that leaves the contract; None where a declared one turns out to be inside."""
        made = self._proposal(draft, (parent,), names, label)
        if is_declared and not breach(self._contract, made.case):
            return None
        return Proposal(made.case, made.lineage, label, contract_breaking=True, nonfinite=made.nonfinite)

    # Recipes

    def _break(self) -> Proposal | None:
        for _ in range(8):  # many ways do not apply to every parent, and the share should hold
            parent = self._pool.choose(self._rng)
            place = self._rng.below(len(self._breaks) + len(self._disorders))
            name, build = (self._breaks + self._disorders)[place]
            draft = build(parent.arrays)
            is_declared = place < len(self._breaks)
            made = None if draft is None else self._broken(draft, parent, (name,), "breaking", is_declared=is_declared)
            if made is not None and self._is_unseen(made):
                return made
        return None

    def _affords(self, draft: Sequence[Array]) -> bool:
        """Let large drafts through in inverse proportion to their size, so that each scale costs about the same."""
        elements = sum(array.size for array in draft)
        if elements <= self._usual_elements:
            return True
        return self._rng.chance(max(self._usual_elements / elements, _LARGE_SHARE))

    def _mixed(self, label: str) -> Proposal | None:
        rng, scene = self._rng, self._scene
        nonfinite = label == "nonfinite"
        near = label == "near"
        parent, family = (rng.pick(self._pool.seeds), SEEDS) if near else self._pool.choose_from(rng, not nonfinite)
        draw = rng.unit()
        count = (1 if draw < 0.5 else 2 if draw < 0.8 else 3) - nonfinite
        mutators = (
            [rng.pick(self._near) if near else self._moves.pick(rng) for _ in range(count)] if self._mutators else []
        )
        donor = parent
        if any(mutator.name in _CROSSING for mutator in mutators):
            donor = rng.pick(self._pool.seeds) if near else self._pool.choose(rng)
        draft = list(parent.arrays)
        names: list[str] = []
        for mutator in mutators:
            moved = mutator.move(scene, draft, donor.arrays, rng)
            if moved is not None:
                draft, names = moved, [*names, mutator.name]
        if not self._affords(draft):
            return None
        draft = related(scene, draft, rng)
        if nonfinite:
            draft, names = self._planted(draft, names)
        if not names:
            return None
        settled = scene.settle(draft, keep_nonfinite=nonfinite)
        if settled is None:
            return None
        parents = (parent,) if donor is parent else (parent, donor)
        return self._proposal(settled, parents, tuple(names), label, family)

    def _planted(self, draft: list[Array], names: list[str]) -> tuple[list[Array], list[str]]:
        """Write NaN or infinity into one input, over all of it or a part."""
        index, fill = self._rng.pick(self._plants)
        array = draft[index].copy(order="C")
        region = (...,) if array.size == 0 or self._rng.chance(0.6) else region_of(array.shape, self._rng)
        array[region] = self._scene.fill(index, array[region], fill)
        draft = list(draft)
        draft[index] = array
        return draft, [*names, fill.name]

    # Learning

    def learn(
        self, proposal: Proposal, features: frozenset[str], *, refused_by_both: bool = False, said: str = ""
    ) -> bool:
        """Take in what a proposal showed; return whether it is novel and now in the pool. `said`: why it was refused.

        Cases that both sides refuse, or that break the contract, teach but never become parents.
        """
        if proposal.contract_breaking:
            self._pool.note(features)
            return False
        self._scene.note_refusal(proposal.case, refused_by_both, said)
        if refused_by_both:
            self._pool.note(features)
            return False
        kept = self._pool.offer(proposal.case, self._arrays(proposal.case), features)
        if kept:
            for name in dict.fromkeys(proposal.lineage.mutators):
                self._moves.arms.paid(name)
                if self.stacker is not None:
                    self.stacker.maker.arms.paid(name)
            self._pool.parents.paid(proposal.family)
        return kept

    def adopt(self, case: Case, features: frozenset[str]) -> None:
        """Add a case that another worker, or an earlier campaign, kept; one outside the contract is only counted."""
        if breach(self._contract, case):
            self._pool.note(features)
        else:
            self._pool.offer(case, self._arrays(case), features)

    def _arrays(self, case: Case) -> list[Array]:
        return [case.inputs[item.name] for item in self._contract.inputs]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Return what refusals by both sides have taught about sizes."""
        return self._scene.relations.rules

    def statistics(self) -> dict[str, tuple[int, int]]:
        """Return by mutator how often it was tried and how often its case was kept."""
        return self._moves.arms.totals()

    def efforts(self) -> Efforts:
        """Return what each move and each family of parents cost and brought since this was asked last."""
        rows = self.stacker.maker.arms.taken() if self.stacker is not None else {}
        return {**self._moves.arms.taken(), **rows, **self._pool.parents.taken()}


_CROSSING = frozenset({"swap inputs", "swap patch", "mix", "token swaps", "index swaps"})
