from __future__ import annotations

import numpy as np
import pytest

from rlsearch.interop import names
from rlsearch.interop.names import Layout
from tests.interop.small import config


@pytest.mark.parametrize("family", sorted(names.TABLES))
@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_is_in_the_table_once(family, tied):
    cfg = config(family, tied=tied, dtype="float32")
    table = names.rows(cfg)
    assert sorted(row.path for row in table) == sorted(names.shapes(cfg))
    for column in ("name", "gguf"):
        written = [
            getattr(row, column).format(layer=i, expert=0) for row in table for i in range(2 if row.stacked else 1)
        ]
        assert len(set(written)) == len(written)
    assert all(bool(row.stacked) == ("{layer}" in row.gguf) == row.path.startswith("blocks.") for row in table)


@pytest.mark.parametrize("layout", list(Layout))
def test_layouts_are_undone(layout):
    array = np.arange(4 * 5 * 6.0).reshape(4, 5, 6)
    theirs = layout.theirs(array)
    assert theirs.flags.c_contiguous
    assert theirs.shape == layout.shape(array.shape)
    np.testing.assert_array_equal(layout.ours(theirs, array.shape), array)


def test_output_first_kernels_compute_the_same():
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=7), rng.normal(size=(7, 3, 2))
    ours = np.einsum("e,ehd->hd", x, kernel)
    np.testing.assert_allclose(Layout.OUTPUT_FIRST.theirs(kernel) @ x, ours.reshape(-1))
    back = rng.normal(size=(3, 2, 7))
    np.testing.assert_allclose(
        Layout.OUTPUT_FIRST_OF_HEADS.theirs(back) @ ours.reshape(-1), np.einsum("hd,hde->e", ours, back)
    )


def test_nested_and_dotted_are_the_same():
    nested = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    assert dict(names.flatten(nested)) == {"a.b": 1, "a.c.d": 2, "e": 3}
    assert names.unflatten(dict(names.flatten(nested))) == nested
