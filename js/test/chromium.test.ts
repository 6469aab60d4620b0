// @vitest-environment node
import { afterEach, expect, test } from "vitest";
import { chromium } from "../scripts/chromium.mjs";

const before = { CHROMIUM: process.env.CHROMIUM, PATH: process.env.PATH };
afterEach(() => {
  for (const [name, value] of Object.entries(before)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
});

test("CHROMIUM selects the browser", () => {
  process.env.CHROMIUM = "/somewhere/chrome";
  expect(chromium()).toBe("/somewhere/chrome");
});
