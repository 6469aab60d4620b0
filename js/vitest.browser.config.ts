import { playwright } from "@vitest/browser-playwright";
import { defineConfig } from "vitest/config";
import { CHROMIUM_ARGS, chromium } from "./scripts/chromium.mjs";

// Components, in the Chromium of this machine.
export default defineConfig({
  // Found only while a test runs, it would make the page reload in the middle of it.
  optimizeDeps: { include: ["axe-core"] },
  test: {
    include: ["test/**/*.browser.test.ts"],
    // A machine that does much else is no failure.
    testTimeout: 60_000,
    browser: {
      enabled: true,
      headless: true,
      screenshotFailures: false,
      provider: playwright({ launchOptions: { executablePath: chromium(), args: CHROMIUM_ARGS } }),
      instances: [{ browser: "chromium", viewport: { width: 1000, height: 800 } }],
    },
  },
});
