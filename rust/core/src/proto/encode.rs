//! Protobuf encoding.

/// Appends an integer field.
pub fn int(into: &mut Vec<u8>, number: u32, value: u64) {
    varint(into, u64::from(number) << 3);
    varint(into, value);
}

/// Appends a 64-bit float field.
pub fn double(into: &mut Vec<u8>, number: u32, value: f64) {
    varint(into, u64::from(number) << 3 | 1);
    into.extend_from_slice(&value.to_le_bytes());
}

/// Appends a 32-bit float field.
pub fn float(into: &mut Vec<u8>, number: u32, value: f32) {
    varint(into, u64::from(number) << 3 | 5);
    into.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field of bytes, text or a message.
pub fn bytes(into: &mut Vec<u8>, number: u32, value: &[u8]) {
    length(into, number, value.len());
    into.extend_from_slice(value);
}

/// Appends the key and length of a field whose content is written separately.
pub fn length(into: &mut Vec<u8>, number: u32, length: usize) {
    varint(into, u64::from(number) << 3 | 2);
    varint(into, length as u64);
}

/// Appends a varint: seven bits per byte, lowest first.
pub fn varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// The encoded size of a varint.
pub fn varint_size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// The encoded size of a field of `length` bytes, with key and length.
pub fn bytes_size(number: u32, length: usize) -> usize {
    varint_size(u64::from(number) << 3) + varint_size(length as u64) + length
}
