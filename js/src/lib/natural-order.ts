/** Natural order of names: "layers.2" before "layers.10". */

const isDigit = (code: number) => code >= 48 && code <= 57;

/** The end of the digits that start at an index. */
function digitsEnd(text: string, from: number): number {
  let at = from;
  while (at < text.length && isDigit(text.charCodeAt(at))) at++;
  return at;
}

/** Compares character by character, and digits as one number of any length. */
export function compareNatural(a: string, b: string): number {
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    const x = a.charCodeAt(i);
    const y = b.charCodeAt(j);
    if (isDigit(x) && isDigit(y)) {
      const endA = digitsEnd(a, i);
      const endB = digitsEnd(b, j);
      // Leading zeros do not count.
      while (i < endA && a.charCodeAt(i) === 48) i++;
      while (j < endB && b.charCodeAt(j) === 48) j++;
      let order = endA - i - (endB - j);
      for (; !order && i < endA; i++, j++) order = a.charCodeAt(i) - b.charCodeAt(j);
      if (order) return order;
      i = endA;
      j = endB;
    } else if (x !== y) return x - y;
    else {
      i++;
      j++;
    }
  }
  return a.length - i - (b.length - j);
}

/** Indices of names in natural order. */
export function naturalOrder(names: readonly string[]): number[] {
  return names.map((_, i) => i).sort((a, b) => compareNatural(names[a] as string, names[b] as string));
}
