/** Marks on the axis of steps, which most runs do not have. */
export { Bookmarks } from "./bookmarks";
export { PartingMark } from "./parting";
