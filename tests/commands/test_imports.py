"""What the commands that open a target import into their own process: nothing of the engines, which the loader has."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["fuzzparity.commands.running", "fuzzparity.campaign.loop"])
def test_a_parent_imports_no_engine(module):
    code = f"import sys, {module}; print(*sorted({{'torch', 'onnxruntime', 'onnxscript', 'scipy'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
