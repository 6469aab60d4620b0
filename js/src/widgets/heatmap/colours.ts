/** The colours of a heat map: the range of its values, the colour table, and the images as pixels, each made once. */
import type { Image } from "../../data/frames";
import type { TensorView } from "../../data/tensor-view";
import { colourPixels } from "../../draw/heatmap";
import type { Pixels } from "../../draw/pen";
import { cssHex, type Theme } from "../../draw/theme";
import { choose, colourDomain, type Table, table } from "../../lib/palette";
import type { HeatmapContent } from "./content";

export class HeatmapColours {
  /** values at both ends of the table */
  domain: [number, number] = [0, 1];
  /** the smallest and the largest value */
  range: [number, number] = [0, 1];
  #table: { key: string; table: Table } | undefined;
  #pixels = new Map<string, { of: unknown; style: string; pixels: Pixels }>();

  get table(): Table {
    return (this.#table as { table: Table }).table;
  }

  update(content: HeatmapContent, theme: Theme): void {
    const { subtracting } = content;
    const { traits } = content.scene;
    const clipped = traits.clip.length === 2 && !subtracting;
    this.range = clipped ? (traits.clip as [number, number]) : rangeOf(content);
    const [lo, hi] = this.range;
    // The ordinary recedes: what did not change has the colour of the page.
    const diverging = traits.palette === "purple-green" ? traits.palette : "blue-red";
    const palette = subtracting ? diverging : choose(traits.palette, lo, hi);
    this.domain = clipped ? [lo, hi] : colourDomain(palette, lo, hi);
    const middle = subtracting ? cssHex(theme.surface) : undefined;
    const key = `${palette}/${theme.dark}/${middle}`;
    if (this.#table?.key !== key) this.#table = { key, table: table(palette, theme.dark, middle) };
  }

  /** The image in these colours. `slot`: images of other slots are kept. */
  pixels(slot: string, image: Image): Pixels {
    const style = `${this.#table?.key}/${this.domain}`;
    const known = this.#pixels.get(slot);
    if (known?.of === image.data && known.style === style) return known.pixels;
    const pixels = colourPixels(image, this.table, this.domain);
    this.#pixels.set(slot, { of: image.data, style, pixels });
    return pixels;
  }
}

function rangeOf({ scene, key, subtracting, beside, ...content }: HeatmapContent): [number, number] {
  const { main, compared, traits } = scene;
  // Of A, only a sample may be kept at this step.
  const image = content.image ?? (beside ? content.second : undefined);
  if (!image || !main || image.rgba) return [0, 1];
  if (subtracting) return [image.lo, image.hi];
  return extent(image, key, beside && compared ? [main, compared] : [main], traits.scale_over);
}

/** The smallest and the largest value of views, at a step or over all of them. */
function extent(image: Image, key: string, of: readonly TensorView[], over: "steps" | "step"): [number, number] {
  const isCodes = !(image.data instanceof Float32Array);
  const ends = (each: Image): number[] => {
    if (isCodes) return [each.lo, each.hi];
    let lo = Number.POSITIVE_INFINITY;
    let hi = Number.NEGATIVE_INFINITY;
    for (const x of each.data) if (Number.isFinite(x)) [lo, hi] = [Math.min(lo, x), Math.max(hi, x)];
    return [lo, hi];
  };
  const ranges = of.map(({ frames, frame }): number[] => {
    const own = frame?.images.get(key);
    if (over === "step") return ends(own ?? image);
    return frames.range(`image/${key}`, (frame) => {
      const each = frame.images.get(key);
      return each && ends(each);
    });
  });
  return [Math.min(...ranges.map(([lo]) => lo as number)), Math.max(...ranges.map(([, hi]) => hi as number))];
}
