export function chromium(): string;
export const CHROMIUM_ARGS: string[];
