import { playwright } from "@vitest/browser-playwright";
import { defineConfig } from "vitest/config";
import { CHROMIUM_ARGS, chromium } from "./scripts/chromium.mjs";

// Component tests in Chromium.
export default defineConfig({
  // The build sets the version of the loader.
  define: { VERSION: '"of-tests"' },
  // Recordings of the kernel's tests are outside of js/.
  server: { fs: { allow: [".."] } },
  // A dependency discovered during a test would reload the page.
  optimizeDeps: { include: ["axe-core"] },
  test: {
    include: ["test/**/*.browser.test.ts"],
    // A busy machine must not fail a test.
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
