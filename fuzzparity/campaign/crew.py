"""Crew: the workers of a campaign, their leases, and what is left of a lease when its worker dies.

The idea: a slot outlives the processes that fill it. Leases are numbered in the order they are handed out, so that with
one worker the sequence of cases follows from `rng_seed` and outcomes alone; the rest of a lost lease goes to the next
process of its slot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuzzparity.campaign.records import Lease, LeaseDone, WorkerSpec
from fuzzparity.case import Case
from fuzzparity.explain.records import TwinSpec
from fuzzparity.generate.perils import Deaths
from fuzzparity.work.alone import Exit
from fuzzparity.work.limits import Limits
from fuzzparity.work.pool import Child, Pool

LEASE_EXECUTIONS = 256
LEASE_SECONDS = 1.0
_STANDS_BY = -1  # the index of the spare worker's place
_JOBS = {"own": "fuzzparity.campaign.worker:serve", "atheris": "fuzzparity.campaign.libfuzzer:serve"}


@dataclass(slots=True, eq=False)
class Slot:
    """Hold one worker's place: its process and the lease it is on."""

    index: int
    child: Child | None = None
    lease: Lease | None = None
    is_ready: bool = False
    adopted: int = 0  # how many of the kept cases it knows
    retry: Lease | None = None  # the rest of a lease whose worker died
    sweep_from: int | None = None  # where the sweep stands, in the one slot that goes through it
    avoided: int = 0  # places of the present lease that stayed empty

    @property
    def is_spare(self) -> bool:
        """Tell whether its worker gets no lease before another one dies."""
        return self.index == _STANDS_BY


class Crew:
    """Keep slots filled and busy."""

    def __init__(
        self,
        pool: Pool,
        limits: Limits,
        spec: WorkerSpec,
        *,
        workers: int,
        next_lease: int = 0,
        next_sequence: int = 0,
        sweep_from: int | None = 0,
        most_executions: int | None = None,
    ) -> None:
        """Start nothing yet; the first slot goes through the sweep of classics, from `sweep_from`."""
        self._pool = pool
        self._limits = limits
        self._spec = spec
        self._most = most_executions
        self._out = 0  # executions of leases that are handed out or done
        self._kept: list[tuple[int, str]] = []  # (process that kept it, digest), in order
        self._spare: Slot | None = None  # a worker that waits for a place, once one has died
        self._deaths = Deaths()
        self.next_lease = next_lease
        self.next_sequence = next_sequence
        self.slots = [Slot(index) for index in range(workers)]
        self.slots[0].sweep_from = sweep_from

    @property
    def sweep_from(self) -> int | None:
        """Return where the sweep stands, None when it is done."""
        return self.slots[0].sweep_from

    @property
    def alive(self) -> int:
        """Return how many slots hold a process."""
        return sum(slot.child is not None for slot in self.slots)

    @property
    def is_gone(self) -> bool:
        """Tell whether no process is left, the spare one included."""
        return all(slot.child is None for slot in self._all)

    def slot_of(self, child: Child) -> Slot | None:
        """Return the slot that a process fills, if it is a worker; that of the spare one is in no lease."""
        return next((slot for slot in self._all if slot.child is child), None)

    @property
    def _all(self) -> list[Slot]:
        return self.slots if self._spare is None else [*self.slots, self._spare]

    def unstack(self) -> None:
        """Let workers launched from now on run no stacks of rows."""
        self._spec = replace(self._spec, may_stack=False)

    def use(self, twin: TwinSpec) -> None:
        """Let workers launched from now on open another twin spec (after the loader was replaced)."""
        self._spec = replace(self._spec, twin=twin)

    def tend(self) -> None:
        """Fill empty slots and hand leases to workers that wait."""
        for slot in self.slots:
            if slot.child is None:
                self._fill(slot)
            elif slot.is_ready and slot.lease is None and (lease := self._lease(slot)) is not None:
                slot.lease = lease
                slot.child.send(lease)
        if self._spare is not None and self._spare.child is None:
            self._launch(self._spare)

    def _fill(self, slot: Slot) -> None:
        """Put the spare worker into a slot, or a new one."""
        spare = self._spare
        if spare is None or spare.child is None:
            self._launch(slot)
            return
        slot.child, slot.is_ready, slot.adopted = spare.child, spare.is_ready, spare.adopted
        spare.child, spare.is_ready = None, False

    def _launch(self, slot: Slot) -> None:
        slot.is_ready = False
        slot.adopted = len(self._kept)  # a new worker reads the whole pool from the database
        slot.child = self._pool.launch(_JOBS[self._spec.engine], (self._spec,), limits=self._limits, label="worker")

    def _lease(self, slot: Slot) -> Lease | None:
        """Return the next lease of a slot: the rest of one whose worker died, or a new one."""
        if slot.retry is not None:
            lease, slot.retry = slot.retry, None
            return replace(lease, perils=self._deaths.perils)
        executions = LEASE_EXECUTIONS if self._most is None else min(LEASE_EXECUTIONS, self._most - self._out)
        if executions <= 0:
            return None
        own = slot.child.child_id if slot.child is not None else -1
        adopt = tuple(digest for keeper, digest in self._kept[slot.adopted :] if keeper != own)
        slot.adopted = len(self._kept)
        lease = Lease(
            self.next_lease,
            executions,
            self.next_sequence,
            LEASE_SECONDS,
            adopt=adopt,
            sweep_from=slot.sweep_from,
            perils=self._deaths.perils,
        )
        self.next_lease += 1
        self.next_sequence += executions
        self._out += executions
        return lease

    def keep(self, slot: Slot, digest: str) -> None:
        """Remember a kept case, so that the other workers adopt it with their next lease."""
        assert slot.child is not None
        self._kept.append((slot.child.child_id, digest))

    def learn(self, bucket: str, case: Case) -> None:
        """Take in that a case killed a side; what many of one bucket have in common becomes rare."""
        self._deaths.learn(bucket, case)

    def finish(self, slot: Slot, done: LeaseDone) -> None:
        """Take the end of a lease."""
        if slot.lease is not None:
            self._out -= slot.lease.executions - slot.lease.skip - done.executions  # the clock may end it early
        slot.lease, slot.avoided = None, 0
        slot.sweep_from = done.sweep_position
        self._deaths.forget(done.harmless)

    def bury(self, slot: Slot, exit_: Exit) -> tuple[Lease | None, int]:
        """Empty a slot whose worker died; return its lease and how many executions of it were begun."""
        lease, announced, avoided = slot.lease, exit_.announced, slot.avoided
        if not slot.is_ready:  # the proof that rows are independent runs wild rows: the next worker does without it
            self.unstack()
        slot.child, slot.lease, slot.avoided = None, None, 0
        if slot is self._spare:  # none stands by until a worker dies again
            self._spare = None
            return None, 0
        self._spare = self._spare or Slot(_STANDS_BY)
        if lease is None:
            return None, 0
        if announced is None or announced.sequence < lease.first_sequence:
            slot.retry = lease
            return lease, 0
        begun = announced.sequence - lease.first_sequence + 1
        if begun < lease.executions:
            slot.retry = replace(lease, skip=begun, adopt=())
        self._out -= avoided
        return lease, max(0, begun - lease.skip - avoided)

    def kill(self) -> None:
        """End every worker at once; what they have sent is still to be taken."""
        for slot in self._all:
            if slot.child is not None:
                slot.child.kill()
