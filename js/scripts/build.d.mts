import type { Metafile } from "esbuild";

/** The content of parts.json; see python/smdwidgets/widgets/bundle.py. */
export interface Content {
  version: string;
  needs: Record<string, string[]>;
  later: Record<string, string[]>;
  styles: Record<string, string[]>;
  files: Record<string, string>;
}

export function bundle(): Promise<{ loader: string; content: Content; metafile: Metafile }>;
export function styleSheets(): { path: string; module: string }[];
