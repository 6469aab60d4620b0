import { describe, expect, test } from "vitest";
import vectors from "../../tests/vectors/markdown.json";
import { markdown } from "../src/lib/markdown";

const { cases } = vectors as { cases: { name: string; text: string; html: string }[] };

test.each(cases)("$name", ({ text, html }) => {
  expect(markdown(text).innerHTML).toBe(html);
});

describe("hostile text", () => {
  const allowed = /^(div|h[456]|p|hr|blockquote|[uo]l|li|pre|code|table|t[rhd]|tbody|strong|em|s|a|br|span)$/i;
  const check = (text: string) => {
    const el = markdown(text);
    const all = [...el.querySelectorAll("*")];
    expect(all.length).toBeLessThan(6000);
    for (const each of all) {
      expect(each.tagName).toMatch(allowed);
      for (const { name } of each.attributes)
        expect(name).toMatch(/^(class|href|rel|target|title|start|tabindex|data-align)$/);
      if (each instanceof HTMLAnchorElement) {
        expect(each.href).toMatch(/^https?:\/\//);
        expect(each.rel).toBe("noopener noreferrer");
      }
    }
    return el;
  };

  test.each([
    ["<script>alert(1)</script>"],
    ["<img src=x onerror=alert(1)>"],
    ["[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,<script>) [d](//evil) [e](file:///etc)"],
    ["![picture](https://example.org/track.png)"],
    ['[a](https://example.org/" onclick="alert(1))'],
    ["[a]( \u0001javascript:alert(1))"],
    ["<https://example.org/><b>"],
    ["|a|\n|-|\n|<svg onload=alert(1)>|"],
  ])("%s", (text) => {
    const el = check(text);
    expect(el.querySelector("script, img, svg, b")).toBeNull();
  });

  test.each([
    ["quotes", ">".repeat(10_000)],
    [
      "lists",
      Array.from({ length: 10_000 }, (_, i) => `${" ".repeat(i)}- x`)
        .join("\n")
        .slice(0, 900_000),
    ],
    ["brackets", "[".repeat(100_000)],
    ["links", "[a](".repeat(30_000)],
    ["stars", "*a **b ".repeat(20_000)],
    ["underscores", "_a".repeat(60_000)],
    ["backticks", "`a ``b ".repeat(20_000)],
    ["emphasis", `${"**".repeat(20_000)}x`],
    ["nested emphasis", `${"*a ".repeat(10_000)}${"b* ".repeat(10_000)}`],
    ["bars", "|".repeat(100_000)],
    ["table", `|a|b|\n|-|-|\n${"|1|2|\n".repeat(20_000)}`],
    ["1 MB", "word **bold** `code` https://example.org/a ".repeat(25_000)],
    ["lines", "\n- \n".repeat(50_000)],
  ])("%s end", (_, text) => {
    check(text);
  });

  test("a long text is cut with a note", () => {
    const el = markdown("a".repeat(200_000));
    expect(el.textContent?.length).toBeLessThan(100_100);
    expect(el.lastElementChild?.textContent).toBe("\u2026 (200,000 characters)");
  });
});
