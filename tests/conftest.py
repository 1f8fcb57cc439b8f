"""For every test: a progress file of its own, no TRITON_INTERPRET, and gpu tests only where there is one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Where this test's progress is kept; not made yet."""
    return tmp_path / "puzzles-state"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, state_dir: Path) -> None:
    monkeypatch.setenv("PUZZLES_STATE_DIR", str(state_dir))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def kernel_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a command in the place of Jupyter's Python kernel."""

    def use(*command: str) -> None:
        folder = tmp_path / "jupyter" / "kernels" / "python3"
        folder.mkdir(parents=True)
        spec = {"argv": command, "display_name": "Python 3", "language": "python"}
        (folder / "kernel.json").write_text(json.dumps(spec))
        monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))

    return use


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    import torch  # two seconds, so only where a test asks for it

    if not torch.cuda.is_available():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
