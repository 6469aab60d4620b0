// @vitest-environment node
/** The built bundle in an exported page, under the policy that such pages carry, in a real Chromium. */
import { createHash } from "node:crypto";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { type Browser, chromium as driver } from "playwright";
import { afterAll, beforeAll, expect, test } from "vitest";
import { catalog, frames, plan, rules, stepsOf, TENSORS } from "../demo/canned";
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

test("drags, draws, asks for nothing and breaks no policy", async () => {
  const [js, css] = await Promise.all([bundle("src/widget.ts"), bundle("src/widget.css")]);
  const tensor = TENSORS.find((each) => each.name === "fc3.weight") as (typeof TENSORS)[number];
  const want = {
    stats: true,
    update: false,
    hist: { scale: "linear" as const, bins: 64, edges: "shared" as const },
    image: { axes: [], fixed: [], pool: "maxabs" as const, cells: 4096 },
    percentiles: true,
  };
  const packets = [
    encode({ kind: "page", traits: { _kind: "explorer", tensor: tensor.name, step: 300 } }),
    catalog(0),
    rules(),
    plan(tensor, 0, ""),
    frames(tensor, 0, "", stepsOf(tensor, 0), want),
  ];
  const policy = `default-src 'none'; script-src ${hash(js)}; style-src ${hash(css)}; img-src data: blob:`;
  const html = `<!doctype html><html><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${policy}"><style>${css}</style></head><body><div class="smdw-page"></div>${packets
    .map(
      (packet) =>
        `<script type="application/octet-stream;base64" class="smdw-packet">${Buffer.from(packet).toString("base64")}</script>`,
    )
    .join("")}<script type="module">${js}</script></body></html>`;
  const page = await browser.newPage({ viewport: { width: 1000, height: 800 } });
  const said: string[] = [];
  const requested: string[] = [];
  page.on("console", (message) => said.push(message.text()));
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("request", (request) => requested.push(request.url()));
  await page.route("http://page.invalid/", (route) => route.fulfill({ body: html, contentType: "text/html" }));
  await page.goto("http://page.invalid/#part");
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
  await page.getByRole("button", { name: "Histogram: more" }).click();
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "SVG" }).click();
  expect((await download).suggestedFilename()).toBe(`fc3.weight-histogram-step-${step}.svg`);
  expect(said).toEqual([]);
  expect(requested.filter((url) => !/^(http:\/\/page\.invalid\/|data:|blob:http:\/\/page\.invalid)/.test(url))).toEqual(
    [],
  );
  await page.close();
}, 30_000);

test("the bundle needs no eval and names no other place", async () => {
  const js = await bundle("src/widget.ts");
  expect(js).not.toMatch(/\beval\(|new Function|innerHTML|insertAdjacentHTML|document\.write\(/);
  expect(js.match(/https?:\/\/[^"'`]+/g)?.filter((url) => !url.startsWith("http://www.w3.org/2000/svg"))).toEqual([]);
});
