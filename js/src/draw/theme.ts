/** The page's colours, read from the variables of widget.css, which follow JupyterLab's. */
import { equal } from "../lib/equal";

export interface Theme {
  dark: boolean;
  /** the page has the colours of the system alone */
  forced: boolean;
  /** more contrast is preferred */
  contrast: boolean;
  ink: string;
  /** muted text */
  ink2: string;
  /** axes and frames, never text */
  rule: string;
  grid: string;
  surface: string;
  accent: string;
  error: string;
  warn: string;
  incident: string;
  font: string;
  mono: string;
}

/** Relative luminance (0 dark, 1 light) of a CSS colour, or undefined if it is transparent or empty. */
function luminance(colour: string, probe: CanvasRenderingContext2D | null): number | undefined {
  if (!probe || !colour.trim()) return undefined;
  probe.clearRect(0, 0, 1, 1);
  probe.fillStyle = "rgba(0,0,0,0)";
  probe.fillStyle = colour.trim();
  probe.fillRect(0, 0, 1, 1);
  const [r = 0, g = 0, b = 0, a = 0] = probe.getImageData(0, 0, 1, 1).data;
  if (a < 128) return undefined;
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
}

/** The six digits of a CSS colour; undefined if it is not opaque. */
export function cssHex(colour: string): string | undefined {
  if (parsed.colour === colour) return parsed.hex;
  const probe = document.createElement("canvas").getContext("2d");
  if (!probe) return undefined;
  probe.fillStyle = colour;
  const written = String(probe.fillStyle);
  parsed = { colour, hex: written.startsWith("#") ? written.slice(1) : undefined };
  return parsed.hex;
}
/** The colour that was parsed last. */
let parsed: { colour: string; hex: string | undefined } = { colour: "", hex: undefined };

function parent(el: Element): Element | null {
  if (el.parentElement) return el.parentElement;
  const root = el.getRootNode();
  return root instanceof ShadowRoot ? root.host : null;
}

function isDark(el: Element, probe: CanvasRenderingContext2D | null): boolean {
  const jupyter = luminance(getComputedStyle(el).getPropertyValue("--jp-layout-color0"), probe);
  if (jupyter !== undefined) return jupyter < 0.5;
  for (let at = parent(el); at; at = parent(at)) {
    const behind = luminance(getComputedStyle(at).backgroundColor, probe);
    if (behind !== undefined) return behind < 0.5;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Sets `data-theme` on `root` to the page's theme and calls `changed` when it changes. */
export class ThemeWatch {
  theme: Theme;
  readonly #probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  constructor(
    private readonly root: HTMLElement,
    changed: () => void,
    signal: AbortSignal,
  ) {
    this.theme = this.#read();
    const detect = () => {
      const now = this.#read();
      // Keep the object while the colours are equal: drawing caches compare it by identity.
      if (equal(now, this.theme)) return;
      this.theme = now;
      changed();
    };
    // The class or attribute of a theme can change before its style sheet has loaded.
    let later: ReturnType<typeof setTimeout> | undefined;
    const both = () => {
      detect();
      clearTimeout(later);
      later = setTimeout(detect, 250);
    };
    const observer = new MutationObserver(both);
    for (const el of [document.documentElement, document.body])
      observer.observe(el, {
        attributes: true,
        attributeFilter: ["class", "style", "data-theme", "data-jp-theme-light", "data-jp-theme-name"],
      });
    for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)", "(forced-colors: active)"])
      matchMedia(query).addEventListener("change", both, { signal });
    signal.addEventListener("abort", () => {
      observer.disconnect();
      clearTimeout(later);
    });
    // The background is known only after `root` is attached.
    requestAnimationFrame(() => !signal.aborted && detect());
  }

  #read(): Theme {
    const dark = isDark(this.root, this.#probe);
    const wanted = dark ? "dark" : "light";
    if (this.root.dataset.theme !== wanted) this.root.dataset.theme = wanted;
    const css = getComputedStyle(this.root);
    const of = (name: string) => css.getPropertyValue(`--smdw-${name}`).trim();
    return {
      dark,
      forced: matchMedia("(forced-colors: active)").matches,
      contrast: matchMedia("(prefers-contrast: more)").matches,
      ink: of("ink"),
      ink2: of("ink2"),
      rule: of("rule"),
      grid: of("grid"),
      surface: of("surface"),
      accent: of("accent"),
      error: of("error"),
      warn: of("warn"),
      incident: of("incident"),
      font: of("font") || "sans-serif",
      mono: of("mono") || "monospace",
    };
  }
}
