/**
 * Encodes and decodes packets: a JSON head and little-endian arrays.
 *
 *     const { head, arrays } = decode(buffer);
 *     head.kind;                    // "frames"
 *     arrays.stats?.shape;          // [n, 18]
 */
import { type Head, PROTOCOL } from "./types";

const MAGIC = 0x50444d53; // "SMDP" read as a little-endian u32

const TYPES = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  f4: Float32Array,
  f8: Float64Array,
} as const;
type TypeName = keyof typeof TYPES;
export type Numbers = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float32Array | Float64Array;

export interface Block {
  data: Numbers;
  shape: number[];
}
export type Blocks = Record<string, Block | undefined>;
export interface Packet {
  head: Head;
  arrays: Blocks;
}

export class PacketError extends Error {
  override name = "PacketError";
}

function assertValid(condition: unknown, reason: string): asserts condition {
  if (!condition) throw new PacketError(`invalid packet from the kernel: ${reason}`);
}

const aligned = (n: number) => (n + 7) & ~7;

function isCount(n: unknown): n is number {
  return typeof n === "number" && Number.isSafeInteger(n) && n >= 0;
}

/** Decodes a packet. Arrays are views of the buffer; an unaligned buffer is copied once. */
export function decode(view: DataView | ArrayBufferView | ArrayBuffer): Packet {
  let bytes =
    view instanceof ArrayBuffer ? new Uint8Array(view) : new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  if (bytes.byteOffset % 8 !== 0) bytes = bytes.slice();
  assertValid(bytes.byteLength >= 16, `${bytes.byteLength} bytes, shorter than the 16-byte header`);
  const header = new DataView(bytes.buffer, bytes.byteOffset, 16);
  assertValid(header.getUint32(0, true) === MAGIC, "it does not start with SMDP");
  const version = header.getUint16(4, true);
  if (version > PROTOCOL)
    throw new PacketError(`protocol mismatch: kernel ${version}, page ${PROTOCOL}; reload the page`);
  const headLength = header.getUint32(8, true);
  const total = header.getUint32(12, true);
  assertValid(total <= bytes.byteLength, `declared ${total} bytes, received ${bytes.byteLength}`);
  assertValid(16 + headLength <= total, `head of ${headLength} bytes exceeds the packet of ${total}`);
  let raw: Record<string, unknown>;
  try {
    raw = JSON.parse(new TextDecoder().decode(bytes.subarray(16, 16 + headLength)));
  } catch (error) {
    throw new PacketError(`invalid packet from the kernel: head is not JSON (${String(error)})`);
  }
  assertValid(raw !== null && typeof raw === "object" && typeof raw.kind === "string", "head has no kind");
  const { arrays: specs, ...head } = raw as { arrays?: Record<string, [TypeName, number[], number]> };
  const start = aligned(16 + headLength);
  const arrays: Blocks = Object.create(null);
  for (const [name, spec] of Object.entries(specs ?? {})) {
    assertValid(Array.isArray(spec), `invalid description of array ${name}`);
    const [type, shape, offset] = spec;
    const make = Object.hasOwn(TYPES, type) ? TYPES[type] : undefined;
    assertValid(make, `unknown type ${String(type)} of array ${name}`);
    assertValid(
      Array.isArray(shape) && shape.every(isCount) && isCount(offset),
      `invalid description of array ${name}`,
    );
    const count = shape.reduce((a, b) => a * b, 1);
    assertValid(isCount(count) && offset % 8 === 0, `invalid size or offset of array ${name}`);
    assertValid(start + offset + count * make.BYTES_PER_ELEMENT <= total, `array ${name} exceeds the packet`);
    arrays[name] = { data: new make(bytes.buffer as ArrayBuffer, bytes.byteOffset + start + offset, count), shape };
  }
  return { head: head as unknown as Head, arrays };
}

/** Encodes a packet. Used by the demo and the tests. */
export function encode(head: Head, arrays: Record<string, [TypeName, number[], ArrayLike<number>]> = {}): ArrayBuffer {
  const specs: Record<string, [TypeName, number[], number]> = {};
  let offset = 0;
  for (const [name, [type, shape, data]] of Object.entries(arrays)) {
    specs[name] = [type, shape, offset];
    offset = aligned(offset + data.length * TYPES[type].BYTES_PER_ELEMENT);
  }
  const json = new TextEncoder().encode(JSON.stringify({ ...head, arrays: specs }));
  const start = aligned(16 + json.length);
  const out = new ArrayBuffer(start + offset);
  const header = new DataView(out);
  header.setUint32(0, MAGIC, true);
  header.setUint16(4, PROTOCOL, true);
  header.setUint32(8, json.length, true);
  header.setUint32(12, out.byteLength, true);
  new Uint8Array(out, 16).set(json);
  for (const [name, [type, , data]] of Object.entries(arrays))
    new TYPES[type](out, start + (specs[name]?.[2] ?? 0), data.length).set(data);
  return out;
}
