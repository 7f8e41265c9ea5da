"""kill -9 of the writing process at random moments: what it acknowledged over a pipe is there afterwards."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fuzzparity.corpus.database import Corpus

ROUNDS = 20
WRITER = """
import sys
from pathlib import Path
import numpy as np
sys.path.insert(0, {tests!r})
from conftest import make_facts, suspect_of
from fuzzparity.case import Case, Lineage
from fuzzparity.corpus.database import Corpus
from fuzzparity.corpus.records import KeptCase

with Corpus.open(Path({path!r}), create=True) as corpus:
    campaign = corpus.begin_campaign(make_facts(Path({build!r})), "fuzz", 0)
    print("campaign", campaign, flush=True)
    for n in range(1_000_000):
        rows = [KeptCase(Case({{"x": np.array([{number}, n, k])}}), Lineage(sequence=n)) for k in range(3)]
        corpus.keep_cases(campaign, rows)
        for row in rows:
            print("case", row.case.digest, flush=True)
        if n % 5 == 0:
            finding_id, _ = corpus.suspect(campaign, suspect_of(value=n, site="{number}-" + str(n)), 0.0)
            print("finding", finding_id, flush=True)
"""


@pytest.mark.slow
def test_no_acknowledged_row_is_lost_when_the_writer_is_killed(tmp_path, facts):
    path = tmp_path / "corpus.sqlite"
    acknowledged = {"campaign": set(), "case": set(), "finding": set()}
    moments = random.Random(0)
    for number in range(ROUNDS):
        given = {"tests": str(Path(__file__).parent), "path": str(path), "build": facts.build.folder, "number": number}
        writer = subprocess.Popen([sys.executable, "-c", WRITER.format(**given)], stdout=subprocess.PIPE, text=True)
        lines = [writer.stdout.readline()]
        time.sleep(moments.uniform(0.0, 0.3))
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.read().splitlines(keepends=True)
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL
        for line in lines:
            if line.endswith("\n"):  # a cut line was not received
                kind, name = line.split()
                acknowledged[kind].add(name)
    with Corpus.open(path) as corpus:  # the lock died with its holder
        assert corpus.verify() == []
        assert acknowledged["campaign"] <= {row.campaign_id for row in corpus.campaigns()}
        assert acknowledged["case"] <= {row.digest for row in corpus.cases()}
        assert acknowledged["finding"] <= {finding.finding_id for finding in corpus.findings()}
    assert len(acknowledged["case"]) > 10 * ROUNDS
