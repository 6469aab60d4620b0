//! All instruction sets, compared with exact sums and with each other.

use proptest::prelude::*;

use super::exact::ExactSum;
use super::{Op, OpSet, Reductions, Value, reduce, reduce_by, reduce_some};
use crate::simd::InstructionSet;
use crate::tensor::DType;

fn bytes<const N: usize, T: Copy>(values: &[T], of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| of(*value)).collect()
}

fn exact_sum(values: impl Iterator<Item = f64>) -> f64 {
    let mut sum = ExactSum::new();
    values.for_each(|value| sum.add(value));
    sum.total(0).to_f64()
}

/// Within one unit in the last place.
fn near(ours: f64, exact: f64, epsilon: f64) -> bool {
    ours == exact || (ours - exact).abs() <= exact.abs() * epsilon
}

fn on_every_isa(dtype: DType, data: &[u8]) -> Vec<Reductions> {
    // With different alignments, too.
    InstructionSet::available()
        .into_iter()
        .enumerate()
        .map(|(shift, isa)| {
            let moved = [vec![0; shift + 1], data.to_vec()].concat();
            reduce_by(isa, dtype, &moved[shift + 1..], OpSet::ALL).unwrap()
        })
        .collect()
}

fn agree(all: &[Reductions], epsilon: f64) {
    for other in &all[1..] {
        assert_eq!(all[0].counts, other.counts);
        for op in Op::ALL {
            for abs in [false, true] {
                let (a, b) = (all[0].get(op, abs).to_f64(), other.get(op, abs).to_f64());
                assert!(near(a, b, epsilon) || a.is_nan() && b.is_nan(), "{op:?} {abs}: {a} {b}");
            }
        }
    }
}

#[test]
fn instruction_sets_agree_on_every_dtype_and_length() {
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    };
    for n in [0, 1, 7, 15, 16, 17, 31, 33, 100, 4095, 4096, 4097, 9001] {
        let values: Vec<f64> = (0..n).map(|_| random() * 3.0).collect();
        let large: Vec<i64> = values.iter().map(|x| (x * 3e18) as i64).collect();
        agree(&on_every_isa(DType::F64, &bytes(&values, f64::to_le_bytes)), f64::EPSILON);
        agree(&on_every_isa(DType::F32, &bytes(&values, |x| (x as f32).to_le_bytes())), f32::EPSILON.into());
        agree(&on_every_isa(DType::F16, &bytes(&values, |x| half::f16::from_f64(x).to_le_bytes())), 1e-3);
        agree(&on_every_isa(DType::BF16, &bytes(&values, |x| half::bf16::from_f64(x).to_le_bytes())), 8e-3);
        agree(&on_every_isa(DType::C64, &bytes(&values[..n / 2 * 2], |x| (x as f32).to_le_bytes())), 1e-6);
        agree(&on_every_isa(DType::C128, &bytes(&values[..n / 2 * 2], f64::to_le_bytes)), 1e-15);
        for dtype in [DType::I64, DType::U64, DType::I32, DType::U32, DType::I16, DType::U16, DType::I8, DType::U8] {
            agree(&on_every_isa(dtype, &bytes(&large, i64::to_le_bytes)), 0.0);
        }
    }
}

proptest! {
    #[test]
    fn sums_of_f64_are_exact(
        values in prop::collection::vec(any::<f64>().prop_filter("finite", |x| x.abs() < 1e300), 0..70),
    ) {
        let sum = exact_sum(values.iter().copied());
        let l1 = exact_sum(values.iter().map(|x| x.abs()));
        for r in on_every_isa(DType::F64, &bytes(&values, f64::to_le_bytes)) {
            prop_assert!(near(r.get(Op::Sum, false).to_f64(), sum, f64::EPSILON));
            prop_assert!(near(r.get(Op::L1, false).to_f64(), l1, f64::EPSILON));
        }
    }

    #[test]
    fn sums_of_f32_are_exact(
        values in prop::collection::vec(any::<f32>().prop_filter("finite", |x| x.is_finite()), 0..70),
    ) {
        let sum = exact_sum(values.iter().map(|x| f64::from(*x)));
        for r in on_every_isa(DType::F32, &bytes(&values, f32::to_le_bytes)) {
            let ours = r.get(Op::Sum, false).to_f64();
            prop_assert!(near(ours, sum, f32::EPSILON.into()) || ours == f64::from(sum as f32), "{ours} {sum}");
        }
    }
}

#[test]
fn products_do_not_overflow_in_between() {
    let mut values = vec![1e-300; 5000];
    values.extend(vec![1e300; 5000]);
    values.push(-3.0);
    for r in on_every_isa(DType::F64, &bytes(&values, f64::to_le_bytes)) {
        // 1e300 and 1e-300 are both rounded, so their errors are multiplied.
        assert!((r.get(Op::Prod, false).to_f64() + 3.0).abs() < 1e-11);
    }
    let values = [vec![f32::MIN_POSITIVE; 999], vec![1.0 / f32::MIN_POSITIVE; 999]].concat();
    for r in on_every_isa(DType::F32, &bytes(&values, f32::to_le_bytes)) {
        assert_eq!(r.get(Op::Prod, true).to_f64(), 1.0);
    }
}

#[test]
fn integers_wrap_as_in_numpy() {
    let r = reduce(DType::I8, &bytes(&[-128i8, 3], i8::to_le_bytes)).unwrap();
    assert_eq!(r.get(Op::Min, true).value(), Value::Int(-128));
    assert_eq!(r.get(Op::Sum, true).value(), Value::Int(-125));
    assert_eq!(r.get(Op::L1, false).value(), Value::Float(131.0));
    let r = reduce(DType::U64, &bytes(&[u64::MAX, 3], u64::to_le_bytes)).unwrap();
    assert_eq!(r.get(Op::Sum, false).value(), Value::UInt(2));
    assert_eq!(r.get(Op::Prod, false).value(), Value::UInt(u64::MAX - 2));
}

#[test]
fn only_requested_reductions_are_computed() {
    let data = bytes(&[1.0f32, 2.0], f32::to_le_bytes);
    let r = reduce_some(DType::F32, &data, OpSet::CHEAP).unwrap();
    assert!(r.try_get(Op::Prod, false).is_none() && r.get(Op::Prod, false).to_f64().is_nan());
    assert_eq!(r.get(Op::Sum, false).to_f64(), 3.0);
    let none = reduce(DType::I32, &[]).unwrap();
    assert!(none.try_get(Op::Min, false).is_none());
    assert_eq!(none.get(Op::Prod, false).value(), Value::Int(1));
}

#[test]
fn strings_and_incomplete_elements_are_errors() {
    assert!(reduce(DType::Str, b"a").unwrap_err().to_string().contains("string"));
    assert!(reduce(DType::F64, &[0; 9]).unwrap_err().to_string().contains("9 bytes"));
}
