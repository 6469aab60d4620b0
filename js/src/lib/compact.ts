/** Counts for axes: 950, 1.2k, 35k, 4M. */
export function compactCount(n: number): string {
  for (const [unit, size] of [
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ] as const)
    if (Math.abs(n) >= size) return `${Number((n / size).toPrecision(2))}${unit}`;
  return String(Number(n.toPrecision(3)));
}
