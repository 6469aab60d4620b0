/** Whether two values have the same JSON, which is how traits are compared. */
export function jsonEqual(a: unknown, b: unknown): boolean {
  return Object.is(a, b) || (typeof a === "object" && JSON.stringify(a) === JSON.stringify(b));
}
