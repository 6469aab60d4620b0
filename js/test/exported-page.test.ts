// @vitest-environment node
/** The bundle in an exported page with its Content-Security-Policy, in Chromium. */
import { createHash } from "node:crypto";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { type Browser, chromium as driver, type Page } from "playwright";
import { afterAll, beforeAll, expect, test } from "vitest";
import { packetsOf } from "../demo/recorded";
import { CHROMIUM_ARGS, chromium } from "../scripts/chromium.mjs";
import { encode } from "../src/protocol/packet";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
let browser: Browser;
beforeAll(async () => {
  browser = await driver.launch({ executablePath: chromium(), args: CHROMIUM_ARGS });
}, 30_000);
afterAll(() => browser.close());

async function bundle(entry: string): Promise<string> {
  const { outputFiles } = await esbuild.build({
    absWorkingDir: root,
    entryPoints: [entry],
    bundle: true,
    format: "esm",
    minify: true,
    write: false,
    charset: "utf8",
  });
  return outputFiles[0]?.text ?? "";
}

const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const WORKERS = "; worker-src blob:";

/** Opens a page as `to_html` writes it. `messages` collects console messages and errors, `requested` the URLs requested. */
async function openPage(extraPolicy: string) {
  const [js, css] = await Promise.all([bundle("src/widget.ts"), bundle("src/widget.css")]);
  const packets = [
    encode({ kind: "page", traits: { _kind: "explorer", tensor: "fc3.weight", step: 300 } }),
    ...(await packetsOf({ what: "hello" })),
    ...(await packetsOf({ what: "frames", tensor: "fc3.weight" })),
  ];
  const policy = `default-src 'none'; script-src ${hash(js)}; style-src ${hash(css)}; img-src data: blob:${extraPolicy}`;
  const html = `<!doctype html><html><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}"><style>${css}</style></head><body><div class="smdw-page"></div>${packets
    .map(
      (packet) =>
        `<script type="application/octet-stream;base64" class="smdw-packet">${Buffer.from(packet).toString("base64")}</script>`,
    )
    .join("")}<script type="module">${js}</script></body></html>`;
  const page = await browser.newPage({ viewport: { width: 1000, height: 800 } });
  const messages: string[] = [];
  const requested: string[] = [];
  page.on("console", (message) => messages.push(message.text()));
  page.on("pageerror", (error) => messages.push(String(error)));
  page.on("request", (request) => requested.push(request.url()));
  await page.route("http://page.invalid/", (route) => route.fulfill({ body: html, contentType: "text/html" }));
  await page.goto("http://page.invalid/#part");
  return { page, messages, requested };
}

test("the slider works without network access or policy violations", async () => {
  const { page, messages, requested } = await openPage(WORKERS);
  const track = page.getByRole("slider", { name: "Step", exact: true });
  await expect.poll(() => track.getAttribute("aria-valuenow")).toBe("300");
  await track.focus();
  await page.keyboard.press("ArrowRight");
  await expect.poll(() => track.getAttribute("aria-valuenow")).toBe("310");
  const box = await track.boundingBox();
  if (!box) throw new Error("no slider");
  await page.mouse.move(box.x + box.width / 2, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 4, box.y + 20, { steps: 10 });
  await page.mouse.up();
  const step = Number(await track.getAttribute("aria-valuenow"));
  expect(step).toBeGreaterThan(200);
  expect(step).toBeLessThan(310);
  await expect.poll(() => page.locator(".smdw-panel-histogram .smdw-readout").textContent()).toMatch(/mean/);
  await page.getByRole("button", { name: "Histogram menu" }).click();
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "SVG" }).click();
  expect((await download).suggestedFilename()).toBe(`fc3.weight-histogram-step-${step}.svg`);
  expect(messages).toEqual([]);
  expect(requested.filter((url) => !/^(http:\/\/page\.invalid\/|data:|blob:http:\/\/page\.invalid)/.test(url))).toEqual(
    [],
  );
  await page.close();
}, 30_000);

async function filterBy(page: Page, pattern: string) {
  await page.getByRole("button", { name: /^regex$/i }).click();
  await page.getByRole("searchbox").fill(pattern);
  return page.locator(".smdw-tensors .smdw-readout");
}

test("a regex filters the tree in a worker; an invalid or slow pattern gives a message and the page stays responsive", async () => {
  const { page, messages } = await openPage(WORKERS);
  const footer = await filterBy(page, "^fc[12]\\.WEIGHT$");
  await expect.poll(() => footer.textContent()).toMatch(/^2 of \d+ tensors$/);
  expect(await page.locator(".smdw-row").allTextContents()).toEqual(["fc1.weight", "fc2.weight"]);
  expect(await page.locator(".smdw-row mark").allTextContents()).toEqual(["fc1.weight", "fc2.weight"]);
  await filterBy(page, "layer(");
  await expect.poll(() => footer.textContent()).toBe("Invalid pattern: /layer(/i: Unterminated group");
  await filterBy(page, "^(((\\w+)+)+)+!");
  await expect.poll(() => footer.textContent()).toBe("Searching\u2026");
  const started = Date.now();
  await page.evaluate(() => new Promise(requestAnimationFrame));
  expect(Date.now() - started).toBeLessThan(1500);
  await expect.poll(() => footer.textContent(), { timeout: 10_000 }).toBe("Pattern too slow: stopped after 2 s");
  await filterBy(page, "fc3");
  await expect.poll(() => footer.textContent()).toMatch(/^4 of/);
  expect(messages).toEqual([]);
  await page.close();
}, 30_000);

test("without permission for workers, the regex filter searches plain text", async () => {
  const { page } = await openPage("");
  const footer = await filterBy(page, "FC1.w");
  await expect.poll(() => footer.textContent()).toMatch(/^2 of \d+ tensors \u00b7 plain text search$/);
  await page.close();
}, 30_000);

test("the bundle uses no eval and contains no external URL", async () => {
  const js = await bundle("src/widget.ts");
  expect(js).not.toMatch(/\beval\(|new Function|innerHTML|insertAdjacentHTML|document\.write\(/);
  expect(js.match(/https?:\/\/[^"'`]+/g)?.filter((url) => !url.startsWith("http://www.w3.org/2000/svg"))).toEqual([]);
});
