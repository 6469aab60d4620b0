/**
 * Whether two values have the same content. Lists and plain objects are compared by content, all other objects by identity. A
 * member that is undefined is missing.
 */
export function equal(a: unknown, b: unknown): boolean {
  if (Object.is(a, b) || a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b))
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((entry, i) => equal(entry, b[i]));
  if (!isPlain(a) || !isPlain(b)) return false;
  const [first, second] = [a as Record<string, unknown>, b as Record<string, unknown>];
  for (const name in first) if (!equal(first[name], second[name])) return false;
  for (const name in second) if (second[name] !== undefined && first[name] === undefined) return false;
  return true;
}

const isPlain = (value: object) => Object.getPrototypeOf(value) === Object.prototype;
