import { expect, test } from "vitest";
import { ChartGroups, grouped } from "../src/session/chart-groups";

test("names with the same rest share a chart, in the order of the names", () => {
  const names = ["a/train_loss", "lr", "a/val_loss", "b/train_loss"];
  expect(
    grouped(names, [
      [0, "a/*_loss", "train"],
      [2, "a/*_loss", "val"],
      [3, "b/*_loss", "train"],
    ]),
  ).toEqual([
    {
      title: "a/*_loss",
      tensors: [
        { name: "a/train_loss", matched: "train" },
        { name: "a/val_loss", matched: "val" },
      ],
    },
    { title: "b/*_loss", tensors: [{ name: "b/train_loss", matched: "train" }] },
  ]);
});

test("a pattern without end is not searched", () => {
  const groups = new ChartGroups();
  groups.update("(a".repeat(600), ["a"], () => {});
  expect([groups.groups, groups.error]).toEqual([[], "The pattern is too long"]);
});
