/** Downloads and clipboard. */

export function save(name: string, data: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data);
  link.download = fileName(name);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Makes a valid file name from a tensor's name. */
export function fileName(name: string): string {
  const dot = name.lastIndexOf(".");
  const clean = (text: string) => text.replace(/[^A-Za-z0-9._-]+/g, "_").replace(/^[._]+/, "");
  return `${clean(name.slice(0, dot)).slice(0, 100) || "smdwidgets"}.${clean(name.slice(dot + 1))}`;
}

/** Text that a spreadsheet would evaluate as a formula. A number, real or complex, is not a formula. */
const FORMULA = /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]/;
const SIZE = "(?:\\d+\\.?\\d*|\\.\\d+|inf|nan)(?:e[+-]?\\d+)?";
const NUMBER = new RegExp(`^[+-]?${SIZE}(?:[+-]${SIZE}j|j)?$`, "i");

/** Formats rows as CSV. Formulas get a leading apostrophe. */
export function csv(rows: readonly (readonly (string | number)[])[]): string {
  const cell = (value: string | number) => {
    if (typeof value === "number") return String(value);
    const text = FORMULA.test(value) && !NUMBER.test(value) ? `'${value}` : value;
    // Quote characters that any spreadsheet uses as a separator.
    return /[",;\t\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\n")}\n`;
}

/** A Python string literal. */
export function pyString(text: string): string {
  return JSON.stringify(text).replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export async function copyText(text: string, from: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // The clipboard API needs https and focus; fall back to a selection.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "smdw-sr";
    from.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
