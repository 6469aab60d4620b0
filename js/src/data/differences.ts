/** Which tensors differ most between the steps of a range and all others. */
import { codePosition, codeValue, FLAG, isLog, type Survey } from "./survey";

export interface Difference {
  tensor: number;
  /** distance of the medians, in spreads */
  score: number;
  /** the medians, as values of the statistic */
  inside: number;
  outside: number;
  /** shares of bins in which a rule fired */
  firedInside: number;
  firedOutside: number;
}

/** Spreads are at least this many decades, shares or units of surprise. */
const LEAST = { log: 0.04, share: 0.01, surprise: 0.5 };

function median(list: number[]): number {
  list.sort((a, b) => a - b);
  return list[list.length >> 1] ?? Number.NaN;
}

/** The tensors, the most different first; those without a value on both sides are left out. */
export function differences(survey: Survey, tensors: readonly number[], from: number, to: number): Difference[] {
  const { stat } = survey;
  const least = stat === "surprise" ? LEAST.surprise : isLog(stat) ? LEAST.log : LEAST.share;
  const out: Difference[] = [];
  for (const tensor of tensors) {
    // The widest block has the rest of the run, the finest one the steps of a short range.
    const blocks = survey.blocks.filter(({ rows }) => rows.has(tensor));
    const rest = blocks.reduce<(typeof blocks)[number] | undefined>(
      (a, b) => (a && a.bins * 2 ** a.level >= b.bins * 2 ** b.level ? a : b),
      undefined,
    );
    const near = blocks.findLast(
      ({ first, bins, level }) => first * 2 ** level <= from && (first + bins) * 2 ** level > to,
    );
    if (!rest) continue;
    const inside: number[] = [];
    const outside: number[] = [];
    let [fired, bins] = [0, 0];
    let [firedOutside, binsOutside] = [0, 0];
    const read = (block: typeof rest, wanted: boolean) => {
      const row = block.rows.get(tensor) as number;
      const reader = block.reader(row, stat);
      const centre = block.usual(row, stat);
      const mid = block.array("mid");
      const width = 2 ** block.level;
      for (let k = 0; k < block.bins; k++) {
        const start = (block.first + k) * width;
        const within = start <= to && start + width > from;
        if (within !== wanted || !reader.read(k, centre)) continue;
        if (wanted) {
          bins++;
          fired += reader.flag & FLAG.fired ? 1 : 0;
        } else {
          binsOutside++;
          firedOutside += reader.flag & FLAG.fired ? 1 : 0;
        }
        const code = mid?.[row * block.stride + k] || reader.code;
        if (code) (wanted ? inside : outside).push(codePosition(stat, code));
      }
    };
    read(near ?? rest, true);
    read(rest, false);
    if (!inside.length || !outside.length) continue;
    const [a, b] = [median(inside), median(outside)];
    const spread = 1.4826 * median([...inside.map((x) => Math.abs(x - a)), ...outside.map((x) => Math.abs(x - b))]);
    const shares = { firedInside: fired / bins, firedOutside: firedOutside / Math.max(1, binsOutside) };
    const score = Math.abs(a - b) / Math.max(spread, least) + Math.abs(shares.firedInside - shares.firedOutside);
    const value = (position: number) => (isLog(stat) ? 10 ** position : position);
    out.push({ tensor, score, inside: value(a), outside: value(b), ...shares });
  }
  return out.sort((a, b) => b.score - a.score);
}

/** Values of a tensor over the whole run, at most `most`, as positions on the statistic's scale. */
export function curveOf(survey: Survey, tensor: number, most: number): { step: number; y: number }[] {
  const blocks = survey.blocks.filter(({ rows }) => rows.has(tensor));
  const block = blocks.reduce<(typeof blocks)[number] | undefined>(
    (a, b) => (a && a.bins * 2 ** a.level > b.bins * 2 ** b.level ? a : b),
    undefined,
  );
  if (!block) return [];
  const row = block.rows.get(tensor) as number;
  const reader = block.reader(row, survey.stat);
  const centre = block.usual(row, survey.stat);
  const points: { step: number; y: number }[] = [];
  for (let k = 0; k < block.bins; k++)
    if (reader.read(k, centre) && reader.code && Number.isFinite(codeValue(survey.stat, reader.code)))
      points.push({ step: (block.first + k) * 2 ** block.level, y: codePosition(survey.stat, reader.code) });
  const each = Math.ceil(points.length / most);
  if (each <= 1) return points;
  // The point of each group that is farthest from the middle, so that no peak is lost.
  const middle = codePosition(survey.stat, centre);
  return Array.from({ length: Math.ceil(points.length / each) }, (_, i) =>
    points.slice(i * each, (i + 1) * each).reduce((a, b) => (Math.abs(b.y - middle) > Math.abs(a.y - middle) ? b : a)),
  );
}
