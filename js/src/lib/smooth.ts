/** Smooths a curve: by an exponential moving average, or by local linear regression. */
import { defined } from "./defined";

/**
 * The exponential moving average of TensorBoard: each value has the weight `1 - weight`, and the average is divided by the
 * sum of the weights so far, so that it does not start at zero. Non-finite points are ignored and unchanged.
 */
export function movingAverage(y: ArrayLike<number>, weight: number): Float64Array {
  const out = Float64Array.from(y);
  const finite = out.filter(Number.isFinite);
  // Rounding must not bend a constant.
  if (!(weight > 0) || finite.every((value) => value === finite[0])) return out;
  let sum = 0;
  let weights = 0;
  for (let i = 0; i < out.length; i++) {
    const value = defined(out[i]);
    if (!Number.isFinite(value)) continue;
    sum = sum * weight + (1 - weight) * value;
    weights = weights * weight + (1 - weight);
    out[i] = sum / weights;
  }
  return out;
}

/**
 * Fits a line around each point, with Gaussian weights of half-width `width` saved points. Unlike a moving average, it
 * has no lag and no bias at the ends. Non-finite points are ignored and unchanged.
 */
export function smooth(x: ArrayLike<number>, y: ArrayLike<number>, width: number): Float64Array {
  const n = y.length;
  const out = Float64Array.from(y);
  if (!(width > 0) || n < 3) return out;
  const finite: number[] = [];
  for (let i = 0; i < n; i++) if (Number.isFinite(y[i])) finite.push(i);
  const reach = Math.ceil(width * 2.5);
  for (let k = 0; k < finite.length; k++) {
    const i = defined(finite[k]);
    const x0 = defined(x[i]);
    const y0 = defined(y[i]);
    let w0 = 0;
    let wx = 0;
    let wy = 0;
    let wxx = 0;
    let wxy = 0;
    for (let j = Math.max(0, k - reach); j <= Math.min(finite.length - 1, k + reach); j++) {
      const at = defined(finite[j]);
      const w = Math.exp(-0.5 * ((j - k) / width) ** 2);
      const dx = defined(x[at]) - x0;
      // Differences from the point itself, so that a constant stays exactly constant.
      const dy = defined(y[at]) - y0;
      w0 += w;
      wx += w * dx;
      wy += w * dy;
      wxx += w * dx * dx;
      wxy += w * dx * dy;
    }
    const det = w0 * wxx - wx * wx;
    out[i] = y0 + (det > 1e-12 * w0 * wxx ? (wxx * wy - wx * wxy) / det : wy / w0);
  }
  return out;
}
