import { describe, expect, test } from "vitest";
import { escapeInvisible } from "../src/lib/escape-text";
import { bytes, count, groupDigits, minusSigns, num, percent, rangeText, shape, truncate } from "../src/lib/format";
import { log, symmetricLog } from "../src/lib/log-scale";
import { path } from "../src/lib/name-path";
import { compareNatural } from "../src/lib/natural-order";
import { choose, colourDomain, table } from "../src/lib/palette";
import { csv, fileName, pyString } from "../src/lib/save";
import { linear, linearTicks } from "../src/lib/scale";
import { movingAverage, smooth } from "../src/lib/smooth";
import { duration } from "../src/lib/time-text";
import { visibleRange } from "../src/lib/virtual-rows";

describe("numbers", () => {
  test("num rounds to significant digits", () => {
    expect([0, 1234.5, -0.5, 1e-9, 12345678, Number.NaN, Infinity, -Infinity].map((x) => num(x))).toEqual([
      "0",
      "1,235",
      "\u22120.5",
      "1e\u22129",
      "1.235e7",
      "NaN",
      "+Inf",
      "\u2212Inf",
    ]);
    expect(num(0.1 + 0.2)).toBe("0.3");
    expect([9067, 90673, -298393].map((x) => num(x, 3))).toEqual(["9,067", "9.07e4", "\u22122.98e5"]);
  });
  test("the ends of a range differ", () => {
    expect(rangeText(0.3501, 0.3499)).toBe("0.3501 \u2026 0.3499");
    expect(rangeText(0.1, 12)).toBe("0.1 \u2026 12");
    expect(rangeText(0.123, 0.124, percent)).toBe("12.3% \u2026 12.4%");
    expect(rangeText(0.5230871, 0.5230872)).toBe("\u2248 0.5231");
    expect(rangeText(0.12301, 0.12302, percent)).toBe("\u2248 12.3%");
  });
  test("hyphens of numbers in a text become minus signs, those of names stay", () => {
    expect(minusSigns("fell from -1.5e-05 to (-2), limit -inf")).toBe(
      "fell from \u22121.5e\u221205 to (\u22122), limit \u2212inf",
    );
    expect(minusSigns("layer-1/conv-2.weight train-0 a-b")).toBe("layer-1/conv-2.weight train-0 a-b");
  });
  test("percent gives 0% and 100% only for exact shares", () => {
    expect([0, 1, 1e-9, 1 - 1e-9, 0.125].map(percent)).toEqual(["0%", "100%", "<0.01%", ">99.99%", "12.5%"]);
  });
  test("count groups digits in threes", () => {
    expect([0, 999, 1000, 1234567, -1000, -999999, -0].map(count)).toEqual([
      "0",
      "999",
      "1,000",
      "1,234,567",
      "\u22121,000",
      "\u2212999,999",
      "0",
    ]);
    expect([groupDigits("1234.5678"), groupDigits("-123.4"), count(1e300)]).toEqual(["1,234.5678", "-123.4", "1e300"]);
  });
  test("bytes, shape and truncate", () => {
    expect([bytes(12), bytes(401_408), bytes(4e6)]).toEqual(["12 B", "401 KB", "4 MB"]);
    expect([shape([]), shape([128, 784])]).toEqual(["scalar", "128 \u00d7 784"]);
    expect(truncate("x".repeat(1_000_000)).length).toBeLessThan(340);
  });
});

describe("scales", () => {
  test.each([linear(-3, 7, [10, 90]), log(1e-6, 1e3, [10, 90]), symmetricLog(-5, 100, 1e-3, [90, 10])])(
    "invert reverses a scale",
    (scale) => {
      const [lo, hi] = scale.domain;
      for (const t of [0, 0.1, 0.5, 0.9, 1]) {
        const value = scale.invert(10 + 80 * t);
        expect(scale(value)).toBeCloseTo(10 + 80 * t, 6);
        expect(value).toBeGreaterThanOrEqual(Math.min(lo, hi) - 1e-9);
      }
      for (const tick of scale.ticks(6)) expect(tick.value >= lo && tick.value <= hi).toBe(true);
    },
  );
  test("ticks are round, without accumulated errors", () => {
    expect(linearTicks(0, 0.5, 5).map((tick) => tick.label)).toEqual(["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
    expect(
      symmetricLog(-1, 1, 1e-3, [0, 100])
        .ticks(6)
        .map((tick) => tick.value),
    ).toContain(0);
  });
  test("empty, non-finite and non-positive ranges give finite scales", () => {
    for (const scale of [
      linear(3, 3, [0, 100]),
      linear(Number.NaN, Number.NaN, [0, 100]),
      linear(Infinity, -Infinity, [0, 100]),
      log(0, 0, [0, 100]),
      log(-3, -1, [0, 100]),
      symmetricLog(0, 0, 0, [0, 100]),
    ])
      expect(
        [...scale.domain, scale(0.5) || 0, ...scale.ticks(5).map((tick) => tick.value)].every(Number.isFinite),
      ).toBe(true);
  });
});

test.each([
  [0.25, "0.25 s"],
  [60, "1 min"],
  [200, "3 min 20 s"],
  [3900, "1 h 5 min"],
  [183_600, "2 d 3 h"],
])("duration of %s s", (seconds, text) => {
  expect(duration(seconds)).toBe(text);
});

describe("smoothing", () => {
  test("averages as TensorBoard does", () => {
    // 0.6 * 0.4 * 1 + 0.4 * 3 over 0.6 * 0.4 + 0.4, and so on.
    const out = movingAverage([1, 3, Number.NaN, 2], 0.6);
    expect(out[0]).toBe(1);
    expect(out[1]).toBeCloseTo((0.24 * 1 + 0.4 * 3) / 0.64, 12);
    expect(out[2]).toBeNaN();
    expect(out[3]).toBeCloseTo((0.144 * 1 + 0.24 * 3 + 0.4 * 2) / 0.784, 12);
  });

  test("keeps a constant, and values without a weight", () => {
    expect([...movingAverage([0.1, 0.1, 0.1], 0.9)]).toEqual([0.1, 0.1, 0.1]);
    expect([...movingAverage([1, 2], 0)]).toEqual([1, 2]);
    expect([...movingAverage([], 0.5)]).toEqual([]);
  });

  const x = Float64Array.from({ length: 60 }, (_, i) => i * 10);
  test("keeps a constant exactly", () => {
    expect([
      ...smooth(
        x,
        x.map(() => 0.1),
        7,
      ),
    ]).toEqual(Array(60).fill(0.1));
  });
  test("keeps a straight line straight at its ends", () => {
    const line = x.map((v) => 3 - v / 7);
    for (const [i, y] of smooth(x, line, 10).entries()) expect(y).toBeCloseTo(line[i] as number, 9);
  });
  test("keeps gaps and ignores their values", () => {
    const y = Float64Array.from(x, (_, i) => (i === 30 ? Number.NaN : 1));
    const out = smooth(x, y, 5);
    expect(out[30]).toBeNaN();
    expect(out[31]).toBe(1);
  });
  test("reduces noise", () => {
    const noisy = Float64Array.from(x, (_, i) => (i % 2 ? 1 : -1));
    expect(Math.max(...smooth(x, noisy, 4).slice(10, 50).map(Math.abs))).toBeLessThan(0.1);
  });
});

describe("names", () => {
  test("a name of a megabyte is one part", () => {
    expect(path("gradient/conv1.weight:0")).toEqual(["gradient", "conv1", "weight:0"]);
    expect(path("/".repeat(5) + "x/".repeat(500_000))).toHaveLength(1);
  });
  test("natural order compares numbers as numbers", () => {
    expect(["a10", "a9b", "b1", "a09", "a", "a1000000000000000000000"].sort(compareNatural)).toEqual([
      "a",
      "a09",
      "a9b",
      "a10",
      "a1000000000000000000000",
      "b1",
    ]);
  });
});

describe("virtual rows", () => {
  test("contain the visible range", () => {
    expect(visibleRange(1000, 20, 100, 200)).toMatchObject({ first: 5, last: 15, total: 20_000, shift: 0 });
    expect(visibleRange(0, 20, 0, 200)).toMatchObject({ first: 0, last: 0 });
  });
  test("reach the last of a billion rows within the browser's scroll limit", () => {
    const { total } = visibleRange(1e9, 22, 0, 440);
    expect(total).toBeLessThan(33_554_428);
    const end = visibleRange(1e9, 22, total - 440, 440);
    expect(end.last).toBe(1e9);
    expect((end.last - 1) * 22 - end.shift).toBeLessThan(total);
  });
});

describe("files", () => {
  test("fileName and csv neutralise hostile names and formulas", () => {
    expect(fileName("../../etc/pass wd\u0000.png")).toBe("etc_pass_wd_.png");
    expect(
      csv([
        ["=cmd()", 1],
        ['a"b', -1.5],
        ["-1", "x,y"],
      ]),
    ).toBe(`'=cmd(),1\n"a""b",-1.5\n-1,"x,y"\n`);
    const numbers = ["-1.5e-7", "+2", "-inf", "nan", "-0.5+1e-3j", "-1j", "0.25"];
    expect(csv([numbers])).toBe(`${numbers.join()}\n`);
    for (const text of ["-2+3+cmd|' /C calc'!A0", "+1+1", "@SUM(1)", "\uff1dA1", " =1", "\t=1", "-1j-2", "1;=2"])
      expect(csv([[text]])).toMatch(/^("?'|"1;)/);
    expect(pyString('a"\n\u00e9')).toBe('"a\\"\\n\\u00e9"');
  });
});

describe("colours", () => {
  test("a diverging colour map is centred at zero", () => {
    expect(choose("auto", -1, 3)).toBe("blue-red");
    expect(colourDomain("blue-red", -1, 3)).toEqual([-3, 3]);
    expect(choose("auto", 0, 3)).toBe("viridis");
    expect([...table("grey", false).slice(0, 3)]).toEqual([16, 16, 16]);
  });
});

describe("escapeInvisible", () => {
  test("escapes control, bidirectional and invisible characters", () => {
    expect(escapeInvisible("gradient/fc1.weight:0 \u2212 \u00e9 \u043e \ud83e\udde8\n\t")).toBe(
      "gradient/fc1.weight:0 \u2212 \u00e9 \u043e \ud83e\udde8\n\t",
    );
    expect(escapeInvisible("a\u001b[2J\u009bb\0")).toBe("a\\x1b[2J\\x9bb\\x00");
    expect(escapeInvisible("loss\u202egpj\u2066\u200b\ufeff")).toBe("loss\\u202egpj\\u2066\\u200b\\ufeff");
    expect(escapeInvisible("\ud800a\u{e0041}\uffff")).toBe("\\ud800a\\U000e0041\\uffff");
  });
});
