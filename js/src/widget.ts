import type { RenderProps } from "@anywidget/types";

/** The one entry that every widget class of the Python package loads. */
function render({ el }: RenderProps): void {
  el.classList.add("smdw");
}

export default { render };
