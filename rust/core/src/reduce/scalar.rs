//! A scalar result, rounded once, in the dtype that numpy returns.

use crate::tensor::DType;

/// A scalar of any numeric dtype, stored as its little-endian bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scalar {
    dtype: DType,
    raw: [u8; 16],
}

/// The value of a [`Scalar`], in the widest type of its kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A float; 16- and 32-bit floats convert exactly.
    Float(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
}

impl Scalar {
    /// A scalar from the bytes of one element.
    pub fn from_raw(dtype: DType, bytes: &[u8]) -> Scalar {
        let mut raw = [0; 16];
        raw[..bytes.len()].copy_from_slice(bytes);
        Scalar { dtype, raw }
    }

    /// Converts a float, rounded to nearest; integers saturate. With a dtype of 8 or 4 bits the scalar is a float32.
    pub fn from_f64(dtype: DType, value: f64) -> Scalar {
        match dtype {
            DType::F16 => Scalar::from_raw(dtype, &half::f16::from_f64(value).to_le_bytes()),
            DType::BF16 => Scalar::from_raw(dtype, &half::bf16::from_f64(value).to_le_bytes()),
            DType::F32 => Scalar::from_raw(dtype, &(value as f32).to_le_bytes()),
            DType::C64 | DType::C128 => Scalar::from_complex(dtype, value, 0.0),
            DType::Bool => Scalar::from_raw(dtype, &[u8::from(value != 0.0)]),
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => Scalar::from_i64(dtype, value as i64),
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Scalar::from_u64(dtype, value as u64),
            DType::F64 | DType::Str => Scalar::from_raw(DType::F64, &value.to_le_bytes()),
            // float32: a sum or a mean would be of no use with 8 bits.
            _ => Scalar::from_f64(DType::F32, value),
        }
    }

    /// A complex scalar (complex64, else complex128).
    pub fn from_complex(dtype: DType, re: f64, im: f64) -> Scalar {
        let mut raw = [0; 16];
        if dtype == DType::C64 {
            raw[..4].copy_from_slice(&(re as f32).to_le_bytes());
            raw[4..8].copy_from_slice(&(im as f32).to_le_bytes());
            Scalar { dtype, raw }
        } else {
            raw[..8].copy_from_slice(&re.to_le_bytes());
            raw[8..].copy_from_slice(&im.to_le_bytes());
            Scalar { dtype: DType::C128, raw }
        }
    }

    /// A signed integer, truncated to the dtype.
    pub fn from_i64(dtype: DType, value: i64) -> Scalar {
        Scalar::from_raw(dtype, &value.to_le_bytes()[..dtype.item_size().min(8)])
    }

    /// An unsigned integer, truncated to the dtype.
    pub fn from_u64(dtype: DType, value: u64) -> Scalar {
        Scalar::from_raw(dtype, &value.to_le_bytes()[..dtype.item_size().min(8)])
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes as one element of an array: little-endian, `dtype().item_size()` of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.raw[..self.dtype.item_size()]
    }

    /// The value.
    pub fn value(&self) -> Value {
        fn head<const N: usize>(raw: &[u8; 16], at: usize) -> [u8; N] {
            std::array::from_fn(|i| raw[at + i])
        }
        let raw = &self.raw;
        match self.dtype {
            DType::Bool => Value::Bool(raw[0] != 0),
            DType::U8 => Value::UInt(raw[0].into()),
            DType::U16 => Value::UInt(u16::from_le_bytes(head(raw, 0)).into()),
            DType::U32 => Value::UInt(u32::from_le_bytes(head(raw, 0)).into()),
            DType::U64 => Value::UInt(u64::from_le_bytes(head(raw, 0))),
            DType::I8 => Value::Int(i8::from_le_bytes(head(raw, 0)).into()),
            DType::I16 => Value::Int(i16::from_le_bytes(head(raw, 0)).into()),
            DType::I32 => Value::Int(i32::from_le_bytes(head(raw, 0)).into()),
            DType::I64 => Value::Int(i64::from_le_bytes(head(raw, 0))),
            DType::F16 => Value::Float(half::f16::from_le_bytes(head(raw, 0)).to_f64()),
            DType::BF16 => Value::Float(half::bf16::from_le_bytes(head(raw, 0)).to_f64()),
            DType::F32 => Value::Float(f32::from_le_bytes(head(raw, 0)).into()),
            DType::F64 | DType::Str => Value::Float(f64::from_le_bytes(head(raw, 0))),
            DType::C64 => {
                Value::Complex(f32::from_le_bytes(head(raw, 0)).into(), f32::from_le_bytes(head(raw, 4)).into())
            }
            DType::C128 => Value::Complex(f64::from_le_bytes(head(raw, 0)), f64::from_le_bytes(head(raw, 8))),
            dtype => Value::Float(dtype.small().map_or(f64::NAN, |small| small.values[usize::from(raw[0])].into())),
        }
    }

    /// The value as a float, for columns and plots: booleans are 0 or 1, complex numbers their real part.
    pub fn to_f64(&self) -> f64 {
        match self.value() {
            Value::Bool(value) => f64::from(u8::from(value)),
            Value::Int(value) => value as f64,
            Value::UInt(value) => value as f64,
            Value::Float(value) | Value::Complex(value, _) => value,
        }
    }
}
