/**
 * The entry of a list whose index is known to be in range: `defined(steps[i])`. The bundler replaces the call by its argument,
 * so it costs nothing in loops.
 */
export function defined<T>(entry: T | undefined): T {
  return entry as T;
}
