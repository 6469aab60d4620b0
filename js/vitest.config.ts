import { defineConfig } from "vitest/config";

// Unit tests in jsdom. Tests that need a browser are named *.browser.test.ts; see vitest.browser.config.ts.
export default defineConfig({
  test: {
    environment: "jsdom",
    include: ["test/**/*.test.ts"],
    exclude: ["test/**/*.browser.test.ts"],
  },
});
