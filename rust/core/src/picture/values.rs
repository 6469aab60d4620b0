//! Conversion of elements of any numeric dtype to f64, in blocks.

use crate::error::Result;
use crate::reduce::{elements, magnitude};
use crate::tensor::DType;

/// Elements per block: fits the first-level cache with its input.
pub const BLOCK: usize = 2048;

/// The number of elements; an error for strings and incomplete elements.
pub fn count(dtype: DType, data: &[u8]) -> Result<u64> {
    elements(dtype, data, "drawn")
}

/// Converts elements to `out`, complex ones to their magnitude, as many as fit.
pub fn read(dtype: DType, bytes: &[u8], out: &mut [f64]) {
    strided(dtype, bytes, dtype.item_size(), out);
}

/// As [`read`], for elements that start `stride` bytes apart.
#[inline(always)]
pub fn strided(dtype: DType, bytes: &[u8], stride: usize, out: &mut [f64]) {
    #[inline(always)]
    fn fill<const N: usize>(bytes: &[u8], stride: usize, out: &mut [f64], of: impl Fn([u8; N]) -> f64) {
        if stride == N {
            for (to, raw) in out.iter_mut().zip(bytes.chunks_exact(N)) {
                let mut element = [0; N];
                element.copy_from_slice(raw);
                *to = of(element);
            }
        } else {
            for (to, at) in out.iter_mut().zip((0..).step_by(stride.max(1))) {
                let mut element = [0; N];
                element.copy_from_slice(&bytes[at..at + N]);
                *to = of(element);
            }
        }
    }
    let single = |raw: &[u8], at: usize| f64::from(f32::from_le_bytes(std::array::from_fn(|i| raw[at + i])));
    let double = |raw: &[u8], at: usize| f64::from_le_bytes(std::array::from_fn(|i| raw[at + i]));
    match dtype {
        DType::F32 => fill(bytes, stride, out, |raw| f32::from_le_bytes(raw).into()),
        DType::F64 => fill(bytes, stride, out, f64::from_le_bytes),
        DType::F16 => fill(bytes, stride, out, |raw| half::f16::from_le_bytes(raw).to_f64()),
        DType::BF16 => fill(bytes, stride, out, |raw| f32::from_bits(u32::from(u16::from_le_bytes(raw)) << 16).into()),
        DType::I8 => fill(bytes, stride, out, |raw| i8::from_le_bytes(raw).into()),
        DType::I16 => fill(bytes, stride, out, |raw| i16::from_le_bytes(raw).into()),
        DType::I32 => fill(bytes, stride, out, |raw| i32::from_le_bytes(raw).into()),
        DType::I64 => fill(bytes, stride, out, |raw| i64::from_le_bytes(raw) as f64),
        DType::U8 => fill(bytes, stride, out, |raw| u8::from_le_bytes(raw).into()),
        DType::U16 => fill(bytes, stride, out, |raw| u16::from_le_bytes(raw).into()),
        DType::U32 => fill(bytes, stride, out, |raw| u32::from_le_bytes(raw).into()),
        DType::U64 => fill(bytes, stride, out, |raw| u64::from_le_bytes(raw) as f64),
        DType::Bool => fill(bytes, stride, out, |[raw]| f64::from(u8::from(raw != 0))),
        DType::C64 => fill::<8>(bytes, stride, out, |raw| magnitude(single(&raw, 0), single(&raw, 4))),
        DType::C128 => fill::<16>(bytes, stride, out, |raw| magnitude(double(&raw, 0), double(&raw, 8))),
        DType::Str => {}
        dtype => {
            if let Some(small) = dtype.small() {
                fill(bytes, stride, out, |[code]| small.values[usize::from(code)].into());
            }
        }
    }
}

/// Calls `each` with every block in order.
pub fn blocks(dtype: DType, data: &[u8], mut each: impl FnMut(&[f64])) {
    let size = dtype.item_size().max(1);
    let mut block = [0.0; BLOCK];
    for bytes in data.chunks(BLOCK * size) {
        let n = bytes.len() / size;
        read(dtype, bytes, &mut block[..n]);
        each(&block[..n]);
    }
}
