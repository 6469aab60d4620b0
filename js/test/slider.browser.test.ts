import { afterEach, expect, test } from "vitest";
import { $, button, frame, key, type MountedWidget, open, pixel, pointer, until } from "./helpers";
import { stepsPacket } from "./packets";

let shown: MountedWidget | undefined;
afterEach(() => shown?.close());
const slider = async (traits = {}, options = {}) => {
  shown = open({ _kind: "slider", ...traits }, options);
  const track = $(shown.el, "[role=slider]");
  await until(() => track.getAttribute("aria-valuetext") !== "no steps saved");
  return { ...shown, track, step: () => shown?.model.get("step") as number };
};

test("starts at the latest step and describes it for screen readers", async () => {
  const { track, step } = await slider();
  await until(() => step() === 1200);
  await until(() => track.getAttribute("aria-valuetext") === "step 1200 of 1200, TRAIN step 1080, 121 of 121 saved");
});

test("handles keys before any other listener of the page, including capture listeners", async () => {
  const { track, step, session } = await slider({ step: 600, follow: false });
  const heard: string[] = [];
  const spy = (event: KeyboardEvent) => heard.push(event.key);
  document.addEventListener("keydown", spy, true);
  try {
    const moves: [string, number][] = [
      ["ArrowRight", 610],
      ["ArrowUp", 620],
      ["ArrowLeft", 610],
      ["ArrowDown", 600],
      ["PageUp", 720],
      ["PageDown", 600],
      ["Home", 0],
      ["End", 1200],
    ];
    for (const [name, to] of moves) {
      track.focus();
      expect(key(track, name).defaultPrevented).toBe(true);
      expect(step(), name).toBe(to);
    }
    key(track, "b");
    expect(heard).toEqual([]);
    for (const init of [{ key: "Tab" }, { key: "s", ctrlKey: true }, { key: "Enter", shiftKey: true }])
      key(track, init.key, init);
    expect(heard).toEqual(["Tab", "s", "Enter"]);
    key(document.body, "b");
    expect(heard).toContain("b");
    expect(session.state.get("follow")).toBe(false);
  } finally {
    document.removeEventListener("keydown", spy, true);
  }
});

test("dragging selects saved steps and stops following", async () => {
  const { el, step, session } = await slider();
  const canvas = $<HTMLCanvasElement>(el, ".smdw-figure-track canvas");
  await until(() => canvas.width > 100);
  const width = canvas.clientWidth;
  pointer(canvas, "pointerdown", 10, 20);
  expect(step()).toBe(0);
  const seen = new Set<number>();
  for (let x = 10; x <= width - 10; x += 7) {
    pointer(canvas, "pointermove", x, 20);
    seen.add(step());
  }
  pointer(canvas, "pointermove", width / 2, 20);
  pointer(canvas, "pointerup", width / 2, 20);
  expect(step()).toBe(600);
  expect([...seen].every((each) => each % 10 === 0)).toBe(true);
  expect(seen.size).toBeGreaterThan(40);
  expect(session.state.get("follow")).toBe(false);
  pointer(canvas, "pointermove", 20, 20);
  expect(step()).toBe(600);
});

test("new steps are followed, or counted while not following", async () => {
  const { el, step, session, track } = await slider();
  session.store.addPackets([stepsPacket(1200, 1250)]);
  await until(() => step() === 1250);
  key(track, "ArrowLeft");
  await frame();
  session.store.addPackets([stepsPacket(1250, 1300)]);
  const fresh = await until(() =>
    [...el.querySelectorAll("button")].find((each) => /new step/.test(each.textContent ?? "") && !each.hidden),
  );
  expect(fresh.textContent).toBe("5 new steps");
  expect(step()).toBe(1240);
  fresh.click();
  expect(step()).toBe(1300);
  expect(session.state.get("follow")).toBe(true);
});

test("a mode has its own steps and step numbers", async () => {
  const { el, track } = await slider({ mode: "EVAL", step: 290, follow: false });
  await until(() => $<HTMLInputElement>(el, ".smdw-step-box").value === "20");
  expect(track.getAttribute("aria-valuetext")).toBe("step 20 of 110, EVAL step 20, 3 of 12 saved");
  key(track, "ArrowRight");
  expect(shown?.model.get("step")).toBe(390);
});

test("the track keeps its width at steps of all modes and while new steps arrive", async () => {
  const { el, track, session } = await slider({ step: 0, follow: false });
  session.store.addPackets([stepsPacket(1200, 1200)]); // the run grows
  await until(() => track.clientWidth > 100);
  const widths = new Set<number>();
  const tags = new Set<string>();
  for (const step of session.store.axis(0, "").steps) {
    session.state.set({ step });
    await frame();
    widths.add(track.getBoundingClientRect().width);
    tags.add($(el, ".smdw-mode-tag").textContent?.split(" ")[0] ?? "");
  }
  for (const last of [1250, 1300, 1400]) {
    session.store.addPackets([stepsPacket(1200, last)]);
    await frame();
    widths.add(track.getBoundingClientRect().width);
  }
  expect([...tags].sort()).toEqual(["EVAL", "TRAIN"]);
  expect(widths.size).toBe(1);
});

test("the step input follows the mode, also while it has the focus", async () => {
  const { el, session } = await slider({ step: 0, follow: false });
  const box = $<HTMLInputElement>(el, ".smdw-step-box");
  box.focus();
  box.value = "1200";
  box.dispatchEvent(new InputEvent("input"));
  key(box, "Enter");
  session.state.set({ mode: "EVAL" });
  const of = $(el, ".smdw-of");
  await until(() => of.textContent === "of 110");
  expect(Number(box.value)).toBeLessThanOrEqual(110);
  box.value = "1200";
  box.dispatchEvent(new InputEvent("input"));
  session.state.set({ mode: "" });
  await until(() => of.textContent === "of 1,200");
  expect(box.value).toBe(String(session.state.get("step")));
});

test("the step input goes to the nearest saved step", async () => {
  const { el, step } = await slider({ step: 0, follow: false });
  const box = $<HTMLInputElement>(el, ".smdw-step-box");
  box.focus();
  box.value = "1,007";
  key(box, "Enter");
  expect(step()).toBe(1010);
  expect(box.value).toBe("1010");
  box.value = "nonsense";
  key(box, "Enter");
  expect(step()).toBe(1010);
});

test("playback stops at the last step", async () => {
  const { el, step } = await slider({ step: 1100, follow: false, speed: 200 });
  button(el, "Play").click();
  expect(button(el, "Pause")).toBeTruthy();
  await until(() => step() === 1200);
  await until(() => [...el.querySelectorAll("button")].some((each) => each.getAttribute("aria-label") === "Play"));
});

test("an empty run disables playback", async () => {
  shown = open({ _kind: "slider" }, { runs: 0 });
  await frame();
  expect($(shown.el, "[role=slider]").getAttribute("aria-valuetext")).toBe("no steps saved");
  expect(button(shown.el, "Play").disabled).toBe(true);
});

test("incidents are marked, named in a tooltip and to screen readers, live and per mode", async () => {
  const { el, track, session } = await slider({ step: 600, follow: false });
  const text = "Incident at step 700: NaN in 'gradient/fc1.weight'; whole tensors of steps 680, 690, 700, 710";
  const list = $(el, "[aria-label=Incidents]");
  const listed = () => [...list.querySelectorAll("li")].map((each) => each.textContent);
  await until(() => listed().length === 1);
  expect(listed()[0]).toContain(text);
  const canvas = $<HTMLCanvasElement>(el, ".smdw-figure-track canvas");
  await until(() => canvas.width > 100);
  const at = (step: number) => 10 + (step / 1200) * (canvas.clientWidth - 20);
  const violet = (step: number) => pixel(canvas, at(step), 24).slice(0, 3).join() === "111,47,208";
  await until(() => violet(700));
  pointer(canvas, "pointermove", at(700) + 5, 27);
  expect(track.title).toContain(text);
  pointer(canvas, "pointermove", at(500), 27);
  expect(track.title).toBe("");
  session.state.set({ step: 700 });
  await until(() => track.getAttribute("aria-valuetext")?.includes(`71 of 121 saved. ${text}`));
  // A new one appears. Between saved steps it has a mark on the axis of all modes.
  const incidents = [
    ...(session.store.runs.get(0)?.incidents ?? []),
    { step: 905, text: "Incident at step 905: SIGUSR1" },
  ];
  session.store.addPackets([stepsPacket(1200, 1200, { incidents })]);
  await until(() => violet(905));
  expect(listed()).toHaveLength(2);
  session.state.set({ mode: "EVAL" });
  await until(() => listed().length === 0);
  expect(list.hidden).toBe(true);
  session.state.set({ mode: "" });
  await until(() => listed().length === 2);
  // Other news keep them; another run in the same place drops them.
  session.store.addPackets([stepsPacket(1190, 1210)]);
  await until(() => track.getAttribute("aria-valuemax") === "1210");
  expect(listed()).toHaveLength(2);
  session.store.addPackets([stepsPacket(-10, 1200, { append: false, restarted_at: 1.7e9 })]);
  await until(() => listed().length === 0);
  await until(() => !violet(700));
});
