"""Judge two executions: compare, weigh the evidence, and say what a difference means.

The idea: a cheap screen errs toward asking; evidence from the exact answer decides; every bound has a stated source.
"""

from fuzzparity.oracle.compare import Allowance, compare
from fuzzparity.oracle.evidence import Referee
from fuzzparity.oracle.judge import Oracle, Screening
from fuzzparity.oracle.policy import Policy, calibrate, relative_look

__all__ = ["Allowance", "Oracle", "Policy", "Referee", "Screening", "calibrate", "compare", "relative_look"]
