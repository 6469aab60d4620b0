import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { IdleTimer } from "../src/lib/idle-timer";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function resting() {
  const control = new AbortController();
  const then = vi.fn();
  return { timer: new IdleTimer(control.signal), control, then };
}
const pointer = (type: string) => window.dispatchEvent(new Event(type));
/** the timer waits for one more animation frame */
const FRAME = 20;

test("the callback runs once, after the last movement", () => {
  const { timer, then } = resting();
  for (let i = 0; i < 5; i++) {
    timer.schedule(100, then);
    vi.advanceTimersByTime(90);
  }
  expect(then).not.toHaveBeenCalled();
  vi.advanceTimersByTime(10 + FRAME);
  expect(then).toHaveBeenCalledTimes(1);
  vi.advanceTimersByTime(5000);
  expect(then).toHaveBeenCalledTimes(1);
});

test("a short pause of a drag does not fire the timer; a release or a long pause does", () => {
  const { timer, then } = resting();
  pointer("pointerdown");
  for (let i = 0; i < 5; i++) {
    timer.schedule(100, then);
    vi.advanceTimersByTime(350);
  }
  expect(then).not.toHaveBeenCalled();
  pointer("pointerup");
  vi.advanceTimersByTime(100 + FRAME);
  expect(then).toHaveBeenCalledTimes(1);
  pointer("pointerdown");
  timer.schedule(100, then);
  vi.advanceTimersByTime(400 + FRAME);
  expect(then).toHaveBeenCalledTimes(2);
  pointer("pointercancel");
  vi.advanceTimersByTime(5000);
  expect(then).toHaveBeenCalledTimes(2);
});

test("a pointer press delays a timer that is almost due", () => {
  const { timer, then } = resting();
  timer.schedule(100, then);
  vi.advanceTimersByTime(95);
  pointer("pointerdown");
  vi.advanceTimersByTime(300);
  expect(then).not.toHaveBeenCalled();
  pointer("pointerup");
  vi.advanceTimersByTime(100 + FRAME);
  expect(then).toHaveBeenCalledTimes(1);
});

test("a cancelled or aborted timer does not fire", () => {
  const { timer, control, then } = resting();
  timer.schedule(100, then);
  timer.cancel();
  vi.advanceTimersByTime(1000);
  timer.schedule(100, then);
  control.abort();
  pointer("pointerup");
  vi.advanceTimersByTime(1000);
  expect(then).not.toHaveBeenCalled();
});
