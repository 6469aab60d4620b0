//! Element types.

/// The element types of the format; the discriminants are the numbers in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DType {
    /// String. The number is 0 because writers omit the field.
    Str = 0,
    /// 32-bit float.
    F32 = 1,
    /// 64-bit float.
    F64 = 2,
    /// 32-bit signed integer.
    I32 = 3,
    /// 8-bit unsigned integer.
    U8 = 4,
    /// 16-bit signed integer.
    I16 = 5,
    /// 8-bit signed integer.
    I8 = 6,
    /// Two 32-bit floats.
    C64 = 8,
    /// 64-bit signed integer.
    I64 = 9,
    /// One byte per value, 0 or 1.
    Bool = 10,
    /// bfloat16: the upper half of a 32-bit float.
    BF16 = 14,
    /// 16-bit unsigned integer.
    U16 = 17,
    /// Two 64-bit floats.
    C128 = 18,
    /// 16-bit float.
    F16 = 19,
    /// 32-bit unsigned integer.
    U32 = 22,
    /// 64-bit unsigned integer.
    U64 = 23,
    /// float8_e5m2: 5 bits of exponent, 2 of mantissa.
    F8E5M2 = 24,
    /// float8_e4m3fn: 4 bits of exponent, 3 of mantissa; no infinities.
    F8E4M3FN = 25,
    /// float8_e4m3fnuz: as float8_e4m3fn with another bias; no negative zero.
    F8E4M3FNUZ = 26,
    /// float8_e4m3b11fnuz: as float8_e4m3fnuz with the bias 11.
    F8E4M3B11FNUZ = 27,
    /// float8_e5m2fnuz: as float8_e5m2 with another bias; no infinities, no negative zero.
    F8E5M2FNUZ = 28,
    /// float4_e2m1fn: 2 bits of exponent, 1 of mantissa; one byte per value.
    F4E2M1FN = 33,
    /// float8_e8m0fnu: a power of two. TensorFlow has no number for it.
    F8E8M0FNU = 200,
}

impl DType {
    /// All dtypes, by ascending number.
    pub const ALL: [DType; 23] = [
        DType::Str,
        DType::F32,
        DType::F64,
        DType::I32,
        DType::U8,
        DType::I16,
        DType::I8,
        DType::C64,
        DType::I64,
        DType::Bool,
        DType::BF16,
        DType::U16,
        DType::C128,
        DType::F16,
        DType::U32,
        DType::U64,
        DType::F8E5M2,
        DType::F8E4M3FN,
        DType::F8E4M3FNUZ,
        DType::F8E4M3B11FNUZ,
        DType::F8E5M2FNUZ,
        DType::F4E2M1FN,
        DType::F8E8M0FNU,
    ];

    /// The dtype of a number. Strings have two: 0 from smdebug and 7 from TensorFlow.
    pub fn from_number(number: u64) -> Option<DType> {
        Some(match number {
            0 | 7 => DType::Str,
            1 => DType::F32,
            2 => DType::F64,
            3 => DType::I32,
            4 => DType::U8,
            5 => DType::I16,
            6 => DType::I8,
            8 => DType::C64,
            9 => DType::I64,
            10 => DType::Bool,
            14 => DType::BF16,
            17 => DType::U16,
            18 => DType::C128,
            19 => DType::F16,
            22 => DType::U32,
            23 => DType::U64,
            24 => DType::F8E5M2,
            25 => DType::F8E4M3FN,
            26 => DType::F8E4M3FNUZ,
            27 => DType::F8E4M3B11FNUZ,
            28 => DType::F8E5M2FNUZ,
            33 => DType::F4E2M1FN,
            200 => DType::F8E8M0FNU,
            _ => return None,
        })
    }

    /// The dtype of a numpy name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The number in the format.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Whether the elements are real floats.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64) || self.small().is_some()
    }

    /// Size of one element in bytes; 0 for strings.
    pub fn item_size(self) -> usize {
        match self {
            DType::Str => 0,
            DType::U8 | DType::I8 | DType::Bool => 1,
            DType::F8E5M2 | DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E4M3B11FNUZ | DType::F8E5M2FNUZ => 1,
            DType::F4E2M1FN | DType::F8E8M0FNU => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 | DType::C64 => 8,
            DType::C128 => 16,
        }
    }

    /// The numpy name ("str" for strings; "bfloat16" and floats of 8 and 4 bits need ml_dtypes).
    pub fn name(self) -> &'static str {
        match self {
            DType::Str => "str",
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::I32 => "int32",
            DType::U8 => "uint8",
            DType::I16 => "int16",
            DType::I8 => "int8",
            DType::C64 => "complex64",
            DType::I64 => "int64",
            DType::Bool => "bool",
            DType::BF16 => "bfloat16",
            DType::U16 => "uint16",
            DType::C128 => "complex128",
            DType::F16 => "float16",
            DType::U32 => "uint32",
            DType::U64 => "uint64",
            DType::F8E5M2 => "float8_e5m2",
            DType::F8E4M3FN => "float8_e4m3fn",
            DType::F8E4M3FNUZ => "float8_e4m3fnuz",
            DType::F8E4M3B11FNUZ => "float8_e4m3b11fnuz",
            DType::F8E5M2FNUZ => "float8_e5m2fnuz",
            DType::F4E2M1FN => "float4_e2m1fn",
            DType::F8E8M0FNU => "float8_e8m0fnu",
        }
    }
}

/// TensorFlow's name of a number that is not a [`DType`], for error messages.
pub(super) fn foreign_name(number: u64) -> &'static str {
    match number {
        11 => "qint8",
        12 => "quint8",
        13 => "qint32",
        15 => "qint16",
        16 => "quint16",
        20 => "resource",
        21 => "variant",
        29 => "int4",
        30 => "uint4",
        31 => "int2",
        32 => "uint2",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::DType;

    #[test]
    fn numbers_and_names_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_number(u64::from(dtype.number())), Some(dtype));
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(DType::from_number(7), Some(DType::Str));
        for unknown in [11, 13, 16, 20, 29, 101, u64::MAX] {
            assert_eq!(DType::from_number(unknown), None);
        }
    }
}
