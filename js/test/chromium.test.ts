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

test("the Chromium a person names is the one that is used", () => {
  process.env.CHROMIUM = "/somewhere/chrome";
  expect(chromium()).toBe("/somewhere/chrome");
});
