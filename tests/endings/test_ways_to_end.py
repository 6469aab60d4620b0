"""A training script leaves a complete run however it ends and holds its hook."""

from endings.scripts import ENDS, HOLDS, NUMPY
from endings.table import smdebug, table  # noqa: F401  # a fixture

test_run_is_complete = table(NUMPY)


def test_docs_have_a_row_for_each_end_and_a_column_for_each_hold(repository):
    page = (repository / "docs" / "hooks.md").read_text(encoding="utf-8")
    table = page.partition("\n| the process ends by |")[2].partition("\n\n")[0]
    head, _, *rows = table.splitlines()
    columns = [cell.strip().strip("`") for cell in head.split("|")[:-2]]
    assert len(columns) == len(HOLDS)
    assert all(column.replace("`", "").split()[-1] in hold for column, hold in zip(columns, HOLDS, strict=True))
    assert len(rows) == len(ENDS)
    for row, (name, end) in zip(rows, ENDS.items(), strict=True):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert name in cells[0]
        assert len(cells) == len(HOLDS) + 2
        assert (end.marker or "none").split(":")[0] in cells[-1]
