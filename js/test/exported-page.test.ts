// @vitest-environment node
/** The bundle in an exported page with its Content-Security-Policy, in Chromium. */
import { createHash } from "node:crypto";
import { type Browser, chromium as driver } from "playwright";
import { afterAll, beforeAll, expect, test } from "vitest";
import { packetsOf } from "../demo/recorded";
import { bundle } from "../scripts/build.mjs";
import { CHROMIUM_ARGS, chromium } from "../scripts/chromium.mjs";
import { encode } from "../src/protocol/packet";
import { encodeState } from "../src/session/state-string";

let browser: Browser;
beforeAll(async () => {
  browser = await driver.launch({ executablePath: chromium(), args: CHROMIUM_ARGS });
}, 30_000);
afterAll(() => browser.close());

/** The script and the style sheet of a page, as in `page_code` of python/smdwidgets/widgets/bundle.py, with all parts. */
async function pageCode(): Promise<[js: string, css: string]> {
  const { content } = await bundle();
  const { files, version } = content;
  const named = (ending: string) => Object.keys(files).filter((name) => name.endsWith(ending) && name !== "parts.js");
  const parts = `globalThis[Symbol.for("smdwidgets.parts")].get("${version}")`;
  const texts = named(".js").map((name) => files[name]);
  const script = [files["parts.js"], `const define=${parts}.define;`, ...texts].join("\n");
  const styles = named(".css").map((name) => files[name]);
  return [`${script}${parts}.load("exported-page").then((page)=>page.open());`, styles.join("")];
}

const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const WORKERS = "; worker-src blob:";

/** Opens a page as `to_html` writes it. `messages` collects console messages and errors, `requested` the URLs requested. */
async function openPage(extraPolicy: string, address = "#part") {
  const [js, css] = await pageCode();
  const packets = [
    encode({ kind: "page", traits: { _kind: "explorer", tensor: "fc3.weight", step: 300, inspect: true } }),
    ...(await packetsOf({ what: "hello" })),
    ...(await packetsOf({ what: "survey", run: 0, stat: "surprise" })),
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
  await page.goto(`http://page.invalid/${address}`);
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
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width / 2, y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 4, y, { steps: 10 });
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

test("the address has the view, and opens it", async () => {
  const first = await openPage(WORKERS);
  const track = first.page.getByRole("slider", { name: "Step", exact: true });
  await expect.poll(() => track.getAttribute("aria-valuenow")).toBe("300");
  const entries = await first.page.evaluate(() => history.length);
  await track.focus();
  for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft"]) await first.page.keyboard.press(key);
  await expect.poll(() => first.page.evaluate(() => location.hash)).toMatch(/^#v=smdw2\.[\w-]+$/);
  expect(await first.page.evaluate(() => history.length)).toBe(entries);
  const address = await first.page.evaluate(() => location.hash);
  expect(first.messages).toEqual([]);
  await first.page.close();

  const second = await openPage(WORKERS, address);
  const name = second.page.locator(".smdw-name");
  await expect
    .poll(() => second.page.getByRole("slider", { name: "Step", exact: true }).getAttribute("aria-valuenow"))
    .toBe("310");
  await expect.poll(() => name.textContent()).toBe("fc3.weight");
  const note = second.page.locator(".smdw-missing");
  expect(await note.isVisible()).toBe(false);
  const other = encodeState({ tensor: "gone", step: 100, inspect: true }, []);
  await second.page.evaluate((text) => {
    location.hash = `#v=${text}`;
  }, other);
  await expect.poll(() => note.textContent()).toBe("The view is restored without tensor 'gone'.");
  await expect
    .poll(() => second.page.getByRole("slider", { name: "Step", exact: true }).getAttribute("aria-valuenow"))
    .toBe("100");
  await second.page.evaluate(() => {
    location.hash = `#v=${"<script>".repeat(100_000)}`;
  });
  await expect
    .poll(() => note.textContent())
    .toBe("The state string is longer than 2,048 characters, and was not used.");
  expect(second.messages).toEqual([]);
  await second.page.close();
}, 60_000);

test("a query is answered by the page; a wrong one gives a message, and the last result stays", async () => {
  const { page, messages } = await openPage("");
  const box = page.getByRole("combobox", { name: "Query" });
  const found = page.locator(".smdw-found");
  await box.fill("/^fc[12]\\.WEIGHT$/");
  await expect.poll(() => found.textContent()).toMatch(/^2 of \d+ tensors$/);
  const rows = page.locator(".smdw-map-row:not(.smdw-map-module)");
  const names = () => rows.evaluateAll((all) => all.map((row) => row.getAttribute("title")?.split("\n")[0]));
  await expect.poll(names).toEqual(["fc1.weight", "fc2.weight"]);
  await box.fill("/layer(/");
  await expect
    .poll(() => page.locator(".smdw-query-error").textContent())
    .toBe("Invalid regular expression: '(' without ')'; write \\( for the character.");
  expect(await names()).toEqual(["fc1.weight", "fc2.weight"]);
  // A backtracking search would never end.
  await box.fill("/^(((\\w+)+)+)+!/");
  await expect.poll(() => page.locator(".smdw-query-error").textContent()).toBe("No name matches '/^(((\\w+)+)+)+!/'.");
  expect(await names()).toEqual(["fc1.weight", "fc2.weight"]);
  await box.fill("fc1 and not (bias or gradient)");
  await expect.poll(names).toEqual(["fc1.weight"]);
  await box.fill("weight | top 2 by surprise");
  await expect.poll(() => found.textContent()).toMatch(/2 of \d+ tensors$/);
  await box.fill("| mean | top 2 by worst");
  await expect.poll(() => found.textContent()).toBe("Not in this file: values of 'mean'");
  expect(messages).toEqual([]);
  await page.close();
}, 30_000);

test("the bundle uses no eval and contains no external URL", async () => {
  const [js] = await pageCode();
  expect(js).not.toMatch(/\beval\(|new Function|innerHTML|insertAdjacentHTML|document\.write\(/);
  expect(js.match(/https?:\/\/[^"'`]+/g)?.filter((url) => !url.startsWith("http://www.w3.org/2000/svg"))).toEqual([]);
});
