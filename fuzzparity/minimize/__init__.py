"""Minimize a case: the simplest one that is still interesting, by one predicate and one total order.

The idea: passes only propose; `Search` accepts what is simpler and interesting, and nothing else.
"""

from fuzzparity.minimize.loop import PASSES, Minimized, PassStatistics, minimize

__all__ = ["PASSES", "Minimized", "PassStatistics", "minimize"]
