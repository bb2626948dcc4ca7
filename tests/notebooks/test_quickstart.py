"""The quickstart notebook, executed with few steps."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat; run `make setup-all`")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient; run `make setup-all`")
pytest.importorskip("matplotlib", reason="needs matplotlib; run `make setup-all`")

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"


@pytest.mark.slow
def test_every_cell_runs(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    settings = [cell for cell in notebook.cells if cell.source.startswith("STEPS, WARMUP = ")]
    assert len(settings) == 1
    settings[0].source = f"STEPS, WARMUP = 3, 40\nWORKDIR = {str(tmp_path / 'run')!r}"
    nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(ROOT)}}).execute()
    printed = [out.text for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs if "text" in out]
    assert any("before: exact match" in text for text in printed)
    assert (tmp_path / "run" / "report.html").is_file()


def test_it_is_committed_without_outputs_and_has_its_badge():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert "colab-badge.svg" in notebook.cells[0].source
    assert not [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
