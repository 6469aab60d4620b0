import { describe, expect, test } from "vitest";
import { decode, encode, PacketError } from "../src/protocol/packet";
import type { Head } from "../src/protocol/types";

const head = { kind: "series", run: 0, tensor: "loss", worker: "", mode: "", stat: "value" } as Head;
const packet = () =>
  encode(head, {
    step: ["f8", [3], [0, 10, 20]],
    y: ["f8", [3], [1.5, Number.NaN, -2]],
    codes: ["u1", [2, 2], [1, 2, 3, 4]],
  });

describe("packets", () => {
  test("round-trip through encode and decode", () => {
    const { head: read, arrays } = decode(packet());
    expect(read).toEqual(head);
    expect([...(arrays.y?.data ?? [])]).toEqual([1.5, Number.NaN, -2]);
    expect(arrays.codes).toMatchObject({ shape: [2, 2] });
    expect([...(arrays.codes?.data ?? [])]).toEqual([1, 2, 3, 4]);
  });

  test("respect the byte offset of their buffer", () => {
    const bytes = new Uint8Array(packet());
    for (const offset of [0, 1, 7, 8, 24]) {
      const around = new Uint8Array(bytes.length + offset + 5).fill(255);
      around.set(bytes, offset);
      const { arrays } = decode(new DataView(around.buffer, offset, bytes.length));
      expect([...(arrays.step?.data ?? [])]).toEqual([0, 10, 20]);
    }
  });

  test("are rejected when truncated at any position", () => {
    const bytes = packet();
    for (let n = 0; n < bytes.byteLength; n++) expect(() => decode(bytes.slice(0, n))).toThrow(PacketError);
  });

  test("are rejected if declared sizes are wrong", () => {
    const lie = (change: (arrays: Record<string, unknown[]>) => void) => {
      const arrays: Record<string, unknown[]> = { x: ["f8", [2], 0] };
      change(arrays);
      const json = new TextEncoder().encode(JSON.stringify({ kind: "series", arrays }));
      const start = (16 + json.length + 7) & ~7;
      const out = new Uint8Array(start + 16);
      const view = new DataView(out.buffer);
      view.setUint32(0, 0x50444d53, true);
      view.setUint16(4, 1, true);
      view.setUint32(8, json.length, true);
      view.setUint32(12, out.length, true);
      out.set(json, 16);
      return () => decode(out);
    };
    expect(lie(() => {})).not.toThrow();
    for (const bad of [
      ["f8", [3], 0],
      ["f8", [2], 8],
      ["f8", [-1], 0],
      ["f8", [1e9, 1e9], 0],
      ["f8", [2], 4],
      ["i8", [2], 0],
      ["constructor", [0], 0],
      ["f8", "2", 0],
      7,
    ])
      expect(
        lie((arrays) => Object.assign(arrays, { x: bad })),
        JSON.stringify(bad),
      ).toThrow(PacketError);
  });

  test("of a later protocol version give an error that tells what to do", () => {
    const bytes = packet();
    new DataView(bytes).setUint16(4, 2, true);
    expect(() => decode(bytes)).toThrow(/reload the page/);
  });
});
