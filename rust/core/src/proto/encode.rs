//! Writing the wire.

/// The key and value of an integer field.
pub fn int(into: &mut Vec<u8>, number: u32, value: u64) {
    varint(into, u64::from(number) << 3);
    varint(into, value);
}

/// The key and value of a 64-bit float field.
pub fn double(into: &mut Vec<u8>, number: u32, value: f64) {
    varint(into, u64::from(number) << 3 | 1);
    into.extend_from_slice(&value.to_le_bytes());
}

/// The key and value of a 32-bit float field.
pub fn float(into: &mut Vec<u8>, number: u32, value: f32) {
    varint(into, u64::from(number) << 3 | 5);
    into.extend_from_slice(&value.to_le_bytes());
}

/// The key, length and content of a field of bytes, text or a message.
pub fn bytes(into: &mut Vec<u8>, number: u32, value: &[u8]) {
    length(into, number, value.len());
    into.extend_from_slice(value);
}

/// The key and length of a field whose content comes later.
pub fn length(into: &mut Vec<u8>, number: u32, length: usize) {
    varint(into, u64::from(number) << 3 | 2);
    varint(into, length as u64);
}

/// Seven bits a byte, the lowest first.
pub fn varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// How many bytes [`varint`] takes.
pub fn varint_size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// How many bytes a field of `length` bytes takes, its key and length included.
pub fn bytes_size(number: u32, length: usize) -> usize {
    varint_size(u64::from(number) << 3) + varint_size(length as u64) + length
}
