/**
 * The one binary block that carries everything read from a run: a JSON head and little-endian arrays.
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

function need(truth: unknown, why: string): asserts truth {
  if (!truth) throw new PacketError(`a packet from the kernel is damaged: ${why}`);
}

const aligned = (n: number) => (n + 7) & ~7;

function isCount(n: unknown): n is number {
  return typeof n === "number" && Number.isSafeInteger(n) && n >= 0;
}

/** Reads a packet. Arrays are views of the buffer; only a buffer that begins at an odd address is copied, once. */
export function decode(view: DataView | ArrayBufferView | ArrayBuffer): Packet {
  let bytes =
    view instanceof ArrayBuffer ? new Uint8Array(view) : new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  if (bytes.byteOffset % 8 !== 0) bytes = bytes.slice();
  need(bytes.byteLength >= 16, `${bytes.byteLength} bytes are too few for a header`);
  const header = new DataView(bytes.buffer, bytes.byteOffset, 16);
  need(header.getUint32(0, true) === MAGIC, "it does not begin with SMDP");
  const version = header.getUint16(4, true);
  if (version > PROTOCOL)
    throw new PacketError(
      `the kernel speaks protocol ${version}, this page ${PROTOCOL}: reload the page after upgrading`,
    );
  const headLength = header.getUint32(8, true);
  const total = header.getUint32(12, true);
  need(total <= bytes.byteLength, `it says ${total} bytes, ${bytes.byteLength} arrived`);
  need(16 + headLength <= total, `its head of ${headLength} bytes does not fit in ${total}`);
  let raw: Record<string, unknown>;
  try {
    raw = JSON.parse(new TextDecoder().decode(bytes.subarray(16, 16 + headLength)));
  } catch (error) {
    throw new PacketError(`a packet from the kernel is damaged: its head is not JSON (${String(error)})`);
  }
  need(raw !== null && typeof raw === "object" && typeof raw.kind === "string", "its head has no kind");
  const { arrays: specs, ...head } = raw as { arrays?: Record<string, [TypeName, number[], number]> };
  const start = aligned(16 + headLength);
  const arrays: Blocks = Object.create(null);
  for (const [name, spec] of Object.entries(specs ?? {})) {
    need(Array.isArray(spec), `array ${name} is not described`);
    const [type, shape, offset] = spec;
    const make = Object.hasOwn(TYPES, type) ? TYPES[type] : undefined;
    need(make, `array ${name} has the unknown type ${String(type)}`);
    need(Array.isArray(shape) && shape.every(isCount) && isCount(offset), `array ${name} is not described`);
    const count = shape.reduce((a, b) => a * b, 1);
    need(isCount(count) && offset % 8 === 0, `array ${name} is out of place`);
    need(start + offset + count * make.BYTES_PER_ELEMENT <= total, `array ${name} reaches beyond the end`);
    arrays[name] = { data: new make(bytes.buffer as ArrayBuffer, bytes.byteOffset + start + offset, count), shape };
  }
  return { head: head as unknown as Head, arrays };
}

/** Writes a packet: for the demo, the tests, and nothing else. */
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
