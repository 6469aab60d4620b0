// Finds the Chromium for the tests: $CHROMIUM, else the system's, else Playwright's.
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium as playwright } from "playwright";

const NAMES =
  process.platform === "win32"
    ? ["chrome.exe", "msedge.exe"]
    : ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const PLACES = [
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
  "/Applications/Chromium.app/Contents/MacOS/Chromium",
  "C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe",
  "C:\\Program Files (x86)\\Microsoft\\Edge\\Application\\msedge.exe",
];

function runnable(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Path of an installed Chromium or Chrome. Throws if there is none. */
export function chromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const folders = (process.env.PATH ?? "").split(delimiter).filter(Boolean);
  const here = [...folders.flatMap((folder) => NAMES.map((name) => join(folder, name))), ...PLACES];
  const found = [...here, playwright.executablePath()].find(runnable);
  if (!found)
    throw new Error("no Chromium found: install it (Debian: apt install chromium) or set CHROMIUM to its path");
  return found;
}

/** Arguments for running headless, without a sandbox as root, and without background network requests. */
export const CHROMIUM_ARGS = [
  ...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
  "--disable-dev-shm-usage",
  "--disable-gpu",
];

// `node scripts/chromium.mjs` prints the path and arguments as JSON.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    console.log(JSON.stringify({ path: chromium(), args: CHROMIUM_ARGS }));
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
