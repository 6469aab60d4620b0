/** Longer names have one part. */
export const LONGEST = 400;

/** Splits a name: "gradient/conv1.weight:0" into ["gradient", "conv1", "weight:0"]. */
export function path(name: string): string[] {
  if (name.length > LONGEST) return [name];
  const parts = name.split(/[/.](?=[^/.])/).filter(Boolean);
  return parts.length ? parts : [name];
}
