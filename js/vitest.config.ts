import { defineConfig } from "vitest/config";

// Pure functions, in jsdom. What needs a real browser is named *.browser.test.ts and runs by vitest.browser.config.ts.
export default defineConfig({
  test: {
    environment: "jsdom",
    include: ["test/**/*.test.ts"],
    exclude: ["test/**/*.browser.test.ts"],
  },
});
