import { describe, expect, test } from "vitest";
import { CELL } from "../src/widgets/multiples/cell";
import { cellsIn } from "../src/widgets/multiples/grid";

describe("cells of the small multiples", () => {
  test("one cell fills the space, up to a height", () => {
    expect(cellsIn(1, 822, 300)).toEqual({ columns: 1, width: 822, height: 300 });
    expect(cellsIn(1, 822, 900).height).toBe(CELL.tallest);
  });

  test("a few cells fill it together", () => {
    const { columns, width, height } = cellsIn(5, 822, 360);
    expect(columns * (width + 8) - 8).toBeLessThanOrEqual(822);
    expect(Math.ceil(5 / columns) * (height + 8) - 8).toBeLessThanOrEqual(360);
    expect(width * height).toBeGreaterThan(2 * CELL.width * CELL.height);
  });

  test("many have the smallest height, also without space", () => {
    expect(cellsIn(300, 822, 360)).toEqual({ columns: 4, width: 199, height: CELL.height });
    expect(cellsIn(3, 100, 0)).toEqual({ columns: 1, width: 100, height: CELL.height });
    expect(cellsIn(0, 822, 360).height).toBe(CELL.height);
  });
});
