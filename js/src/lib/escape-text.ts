/**
 * Escapes control characters, bidirectional marks, invisible characters and lone surrogates, so that a name from a run
 * cannot hide or reorder the text next to it.
 *
 *     escapeInvisible("loss\u202egpj")  "loss\\u202egpj"
 */
export function escapeInvisible(text: string): string {
  // Fast path: nearly all text needs no escape, and each frame of a drag sets about a hundred texts.
  return PLAIN.test(text) ? text : text.replace(ACTING, spelled);
}

const PLAIN = /^[\x20-\x7e\u00a0-\u00ac\u00ae-\u05ff\u2010-\u2027\u2030-\u205e]*$/;
const ACTING = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

function spelled(char: string): string {
  const code = char.codePointAt(0) ?? 0;
  if (char === "\n" || char === "\t") return char;
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code > 0xffff ? `\\U${code.toString(16).padStart(8, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}
