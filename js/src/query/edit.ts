/** Changes parts of a query's text. */
import type { Query } from "./parse";

type Kind = Query["parts"][number]["kind"];

/** The text of a query with another part of a kind, or without one (""). `text` is what was parsed. */
export function withPart(text: string, { parts }: Query, kind: Kind, part: string): string {
  const letters = [...text];
  const rest = parts.map(({ start, end, ...each }) => ({ ...each, text: letters.slice(start, end).join("") }));
  const known = rest.find((each) => each.kind === kind);
  if (known) known.text = part;
  else rest.push({ kind, text: part });
  const left = rest.filter((each) => each.text);
  const bar = left[0] && left[0].kind !== "select" ? "| " : "";
  return bar + left.map((each) => each.text).join(" | ");
}
