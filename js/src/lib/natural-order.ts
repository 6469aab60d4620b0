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
    const [x, y] = [a.charCodeAt(i), b.charCodeAt(j)];
    if (isDigit(x) && isDigit(y)) {
      const [endA, endB] = [digitsEnd(a, i), digitsEnd(b, j)];
      const left = a.slice(i, endA).replace(/^0+/, "");
      const right = b.slice(j, endB).replace(/^0+/, "");
      if (left !== right) return left.length - right.length || (left < right ? -1 : 1);
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
