export function layersOf(markdown: string): Map<string, Set<string>>;
export function importsOf(sources: Iterable<readonly [path: string, text: string]>): Map<string, string[]>;
export function violations(graph: Map<string, string[]>, layers: Map<string, Set<string>>): string[];
export function check(): string[];
