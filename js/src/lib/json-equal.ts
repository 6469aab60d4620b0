/** Whether two values have equal JSON. Traits are compared this way. */
export function jsonEqual(a: unknown, b: unknown): boolean {
  return Object.is(a, b) || (typeof a === "object" && JSON.stringify(a) === JSON.stringify(b));
}
