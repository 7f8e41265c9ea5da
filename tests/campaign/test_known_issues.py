"""Known issues and findings of earlier builds through the command line, on a twin that lacks a threshold."""

import numpy as np
import pytest
from campaigns import GIVEN, corpus_of, fuzz, rows, run, write_target

# torch multiplies what is above 3 by FACTOR, ORT everything by 2; a node that does nothing makes another build of it
WRONG = """
    def twin(extra):
        model = doubling()
        for index in range(extra):
            model.graph.node[-1].output[0] = f"z{index}"
            model.graph.node.append(helper.make_node("Identity", [f"z{index}"], ["y"]))
        return model


    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.where(x > 3, x * FACTOR, x * 2)


    def target():
        return Target(
            module=Net(),
            inputs={"x": torch.ones(2, 4)},
            seeds=lambda: [{"x": torch.full((2, 4), 4.0)}],
            onnx=twin(EXTRA),
            outputs=["y"],
            ranges={"x": (0, 10)},
            allow_nonfinite=False,
        )
"""
OPEN = """
    [[issue]]
    name = "no threshold"
    reason = "waits for the next release of the twin"
    link = "https://example.org/12"
    grade = "bug"
    output = "y"
"""


def build(folder, factor, extra):
    return write_target(folder, GIVEN, WRONG.replace("FACTOR", str(factor)).replace("EXTRA", str(extra)))


def bugs(ended):
    return [found for found in ended.answer["findings"] if found["grade"] == "bug"]


def ledger(folder, more=""):
    (folder / "known_issues.toml").write_text("\n".join(line.strip() for line in (OPEN + more).splitlines()))


@pytest.mark.slow
def test_a_finding_lives_through_builds_and_its_ledger_is_held_against_them(tmp_path):
    build(tmp_path, 3.0, 0)
    first = fuzz(tmp_path, "--cases", "20", "--json", "out.json")
    assert first.code == 1, first.stdout
    (found,) = bugs(first)
    assert (found["kind"], found["known"]) == ("numeric", None)
    shown = run(tmp_path, "finding", "show", found["finding_id"]).stdout
    assert 'kind = "numeric"' in shown  # the entry to paste
    assert "agrees from atol" in shown

    # the same fault on another build: expected, and so no failure
    ledger(tmp_path)
    build(tmp_path, 3.0, 1)
    second = fuzz(tmp_path, "--cases", "20", "--json", "out.json")
    assert second.code == 0, second.stdout
    (again,) = bugs(second)
    assert again["known"] == "no threshold"
    assert again["finding_id"] != found["finding_id"]
    became = next(item for item in second.answer["rechecks"] if item["finding_id"] == found["finding_id"])
    assert became["state"] == "still there"
    assert became["finding_there"] == again["finding_id"]
    assert second.answer["known_issues"][0]["standing"] == "shows"
    assert "1 known: no threshold (https://example.org/12)" in second.stdout

    # mended: said to be gone, with what to change in the ledger
    build(tmp_path, 2.0, 2)
    mended = run(tmp_path, "check", "subject.py", "--json", "out.json")
    assert mended.code == 0, mended.stdout
    assert "gone" in [item["state"] for item in mended.answer["rechecks"]]
    assert "no longer shows" in mended.stdout
    assert 'set expected = "fixed"' in mended.stdout
    sql = f"select state from rechecks where finding_id = '{again['finding_id']}'"
    assert rows(corpus_of(tmp_path), sql) == [("gone",)]
    listed = run(tmp_path, "finding", "ls").stdout
    assert "[known: no threshold]" in listed
    assert "no longer shows" in listed

    # it comes back: what is said to be fixed fails, wherever it is seen
    ledger(tmp_path, 'expected = "fixed"\n')
    build(tmp_path, 3.0, 3)
    back = run(tmp_path, "check", "subject.py")
    assert back.code == 1
    assert "is said to be fixed, and shows again" in back.stdout


@pytest.mark.slow
def test_given_inputs_are_judged_by_the_policy_of_the_call_and_stored_apart(tmp_path):
    build(tmp_path, 2.2, 0)
    np.savez(tmp_path / "four.npz", x=np.full((1, 4), 4.0, np.float32))
    agrees = run(tmp_path, "explain", "subject.py", "four.npz", "--policy", "y=1.0", "--json", "-")
    assert agrees.code == 0, agrees.stderr
    assert [item["kind"] for item in agrees.answer["findings"]] == ["agree"]
    assert not corpus_of(tmp_path).exists()
