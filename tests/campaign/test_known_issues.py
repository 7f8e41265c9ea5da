"""Known issues and findings of earlier builds through the command line, on a twin that is wrong from its first seed."""

import numpy as np
import pytest
from campaigns import GIVEN, corpus_of, fuzz, rows, run, write_target

# five times what torch says, until it is mended; a node that does nothing makes another build of it
WRONG = """
    def twin(factor, extra):
        model = doubling(factor)
        for index in range(extra):
            model.graph.node[-1].output[0] = f"z{index}"
            model.graph.node.append(helper.make_node("Identity", [f"z{index}"], ["y"]))
        return model


    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2


    def target():
        return Target(module=Net(), inputs={"x": torch.full((2, 4), 3.0)}, onnx=twin(FACTOR, EXTRA), outputs=["y"])
"""
OPEN = """
    [[issue]]
    name = "ten instead of two"
    reason = "waits for the next release of the twin"
    link = "https://example.org/12"
    kind = "numeric"
    output = "y"
"""


def build(folder, factor, extra):
    return write_target(folder, GIVEN, WRONG.replace("FACTOR", str(factor)).replace("EXTRA", str(extra)))


def ledger(folder, more="", **changed):
    text = "\n".join(line.strip() for line in (OPEN + more).splitlines())
    for old, new in changed.items():
        text = text.replace(old, new)
    (folder / "known_issues.toml").write_text(text)


@pytest.mark.slow
def test_a_finding_lives_through_builds_and_its_ledger_is_held_against_them(tmp_path):
    build(tmp_path, 10.0, 0)
    first = fuzz(tmp_path, "--cases", "20", "--json", "out.json")
    assert first.code == 1, first.stdout
    (found,) = first.answer["findings"]
    assert (found["kind"], found["grade"], found["known"]) == ("numeric", "bug", None)
    shown = run(tmp_path, "finding", "show", found["finding_id"]).stdout
    assert 'kind = "numeric"' in shown  # the entry to paste
    assert "(rtol 0) on" in shown

    # the same fault on another build: expected, and so no failure
    ledger(tmp_path)
    build(tmp_path, 10.0, 1)
    second = fuzz(tmp_path, "--cases", "20", "--json", "out.json")
    assert second.code == 0, second.stdout
    (again,) = second.answer["findings"]
    assert again["known"] == "ten instead of two"
    assert again["finding_id"] != found["finding_id"]
    (became,) = second.answer["rechecks"]
    assert (became["finding_id"], became["state"]) == (found["finding_id"], "still there")
    assert became["finding_there"] == again["finding_id"]
    assert second.answer["known_issues"][0]["standing"] == "shows"
    assert "1 known: ten instead of two (https://example.org/12)" in second.stdout

    # mended: said to be gone, with what to change in the ledger
    build(tmp_path, 2.0, 1)
    mended = run(tmp_path, "check", "subject.py", "--json", "out.json")
    assert mended.code == 0, mended.stdout
    assert {item["state"] for item in mended.answer["rechecks"]} == {"gone"}
    assert "no longer shows" in mended.stdout
    assert 'set expected = "fixed"' in mended.stdout
    states = rows(corpus_of(tmp_path), "select state from rechecks order by recheck_id")
    assert [state for (state,) in states] == ["still there", "gone"]
    listed = run(tmp_path, "finding", "ls").stdout
    assert "[known: ten instead of two]" in listed
    assert "no longer shows" in listed

    # it comes back: what is said to be fixed fails, wherever it is seen
    ledger(tmp_path, 'expected = "fixed"\n')
    build(tmp_path, 10.0, 2)
    back = run(tmp_path, "check", "subject.py")
    assert back.code == 1
    assert "is said to be fixed, and shows again" in back.stdout


@pytest.mark.slow
def test_given_inputs_are_judged_by_the_policy_of_the_call_and_stored_apart(tmp_path):
    build(tmp_path, 2.25, 0)
    np.savez(tmp_path / "four.npz", x=np.full((1, 4), 4.0, np.float32))
    agrees = run(tmp_path, "explain", "subject.py", "four.npz", "--policy", "y=1.0", "--json", "-")
    assert agrees.code == 0, agrees.stderr
    assert [item["kind"] for item in agrees.answer["findings"]] == ["agree"]
    assert not corpus_of(tmp_path).exists()
