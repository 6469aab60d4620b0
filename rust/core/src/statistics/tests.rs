use proptest::prelude::*;

use super::{Statistics, combine, statistics, statistics_by};
use crate::reduce::{Op, Scalar, reduce};
use crate::simd::InstructionSet;
use crate::tensor::DType;

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn f64s(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn random(n: usize, mut seed: u64) -> Vec<f64> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    };
    (0..n).map(|_| next() * 3.0).collect()
}

/// The bytes of these values in a dtype.
fn encoded(dtype: DType, values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| Scalar::from_f64(dtype, *value).as_bytes().to_vec()).collect()
}

fn near(ours: f64, exact: f64, epsilon: f64) -> bool {
    ours == exact || ours.is_nan() && exact.is_nan() || (ours - exact).abs() <= exact.abs() * epsilon
}

const REAL: [DType; 13] = [
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::Bool,
];

#[test]
fn finite_tensors_agree_with_reductions_on_every_dtype_and_length() {
    for n in [0, 1, 7, 16, 33, 100, 4095, 4097, 9001] {
        let values: Vec<f64> = random(n, 1).iter().map(|x| x * 30.0).collect();
        for dtype in REAL {
            let bytes = encoded(dtype, &values);
            let all = reduce(dtype, &bytes).unwrap();
            for isa in InstructionSet::available() {
                let s = statistics_by(isa, dtype, &bytes, None).unwrap();
                assert_eq!((s.count, s.zeros), (all.counts.n, all.counts.zeros), "{dtype:?}");
                for (op, value) in [
                    (Op::Min, s.min),
                    (Op::Max, s.max),
                    (Op::Mean, s.mean),
                    (Op::Std, s.std),
                    (Op::L1, s.l1),
                    (Op::L2, s.l2),
                ] {
                    let reduced = all.get(op, false);
                    let ours = Scalar::from_f64(reduced.dtype(), value).to_f64();
                    assert!(near(ours, reduced.to_f64(), f64::EPSILON), "{dtype:?} {op:?}: {ours} {reduced:?}");
                }
                assert!(s.update.is_nan());
            }
        }
    }
}

#[test]
fn moments_are_of_finite_elements() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for n in [1, 15, 4096, 9001] {
            let finite = random(n, 7);
            let mut mixed = finite.clone();
            // At the ends, and in the middle of groups.
            odd.iter().enumerate().for_each(|(i, value)| mixed.insert(i * n / 4, *value));
            mixed.push(f64::NAN);
            let clean = statistics(dtype, &encoded(dtype, &finite), None).unwrap();
            for isa in InstructionSet::available() {
                let s = statistics_by(isa, dtype, &encoded(dtype, &mixed), None).unwrap();
                assert_eq!((s.count, s.nan, s.neg_inf, s.pos_inf), (n as u64 + 5, 2, 2, 1));
                assert_eq!((s.min, s.max, s.abs_max, s.zeros), (clean.min, clean.max, clean.abs_max, clean.zeros));
                for (ours, theirs) in [(s.mean, clean.mean), (s.std, clean.std), (s.l1, clean.l1), (s.l2, clean.l2)] {
                    assert!(near(ours, theirs, 1e-7), "{dtype:?} {n}: {ours} {theirs}");
                }
            }
        }
        let s = statistics(dtype, &encoded(dtype, &odd), None).unwrap();
        assert!([s.min, s.max, s.mean, s.std, s.abs_max].iter().all(|value| value.is_nan()), "{s:?}");
        assert_eq!((s.l1, s.l2, s.finite()), (0.0, 0.0, 0));
    }
}

#[test]
fn sums_of_large_elements_do_not_overflow() {
    let s = statistics(DType::F32, &f32s(&[f32::MAX; 5000]), None).unwrap();
    assert!(near(s.l1, f64::from(f32::MAX) * 5000.0, 1e-7) && near(s.mean, f32::MAX.into(), 1e-15) && s.std == 0.0);
    let large = [1.5e308, f64::NAN, -1.5e308];
    let s = statistics(DType::F64, &f64s(&large), Some(&f64s(&[1.5e308, 0.0, 0.0]))).unwrap();
    assert!(near(s.l2, 1.5e308 * f64::sqrt(2.0), f64::EPSILON) || s.l2.is_infinite());
    assert_eq!((s.mean, s.update), (0.0, 1.5e308));
    let tiny = statistics(DType::F64, &f64s(&[3e-300, 4e-300]), Some(&f64s(&[0.0; 2]))).unwrap();
    assert!(near(tiny.l2, 5e-300, 1e-15) && near(tiny.update, 5e-300, 1e-12), "{tiny:?}");
}

#[test]
fn updates_are_norms_of_the_change() {
    for n in [1, 16, 31, 4100, 9001] {
        let (now, mut before) = (random(n, 3), random(n, 4));
        before[n / 2] = f64::NAN;
        for dtype in REAL {
            let (now, before) = (encoded(dtype, &now), encoded(dtype, &before));
            let size = dtype.item_size();
            let read = |bytes: &[u8]| -> Vec<f64> {
                bytes.chunks_exact(size).map(|raw| Scalar::from_raw(dtype, raw).to_f64()).collect()
            };
            let exact: f64 = read(&now)
                .iter()
                .zip(read(&before))
                .filter(|(_, before)| !before.is_nan())
                .map(|(now, before)| (now - before).powi(2))
                .sum::<f64>()
                .sqrt();
            for isa in InstructionSet::available() {
                let update = statistics_by(isa, dtype, &now, Some(&before)).unwrap().update;
                assert!(near(update, exact, 1e-13), "{dtype:?} {n}: {update} {exact}");
            }
        }
    }
    let complex = statistics(DType::C128, &f64s(&[3.0, 4.0, 1.0, f64::NAN]), Some(&f64s(&[0.0; 4]))).unwrap();
    assert_eq!((complex.update, complex.max, complex.nan, complex.l2), (5.0, 5.0, 1, 5.0));
    let large = [i64::MAX, 1].map(i64::to_le_bytes).concat();
    let before = [i64::MAX - 3, 5].map(i64::to_le_bytes).concat();
    assert_eq!(statistics(DType::I64, &large, Some(&before)).unwrap().update, 5.0);
}

#[test]
fn previous_tensor_must_have_the_same_size() {
    let error = statistics(DType::F32, &[0; 8], Some(&[0; 4])).unwrap_err().to_string();
    assert!(error.contains("4 bytes") && error.contains('8'), "{error}");
    assert!(statistics(DType::Str, &[], None).is_err());
}

fn close(ours: f64, exact: f64, scale: f64) -> bool {
    ours.is_nan() && exact.is_nan() || (ours - exact).abs() <= scale * 1e-13
}

proptest! {
    #[test]
    fn combined_parts_equal_the_whole(
        values in prop::collection::vec(prop_oneof![
            8 => -1e3f64..1e3, 1 => Just(0.0), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY),
        ], 0..60),
        cuts in prop::collection::vec(prop::sample::Index::arbitrary(), 0..5),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(values.len() + 1)).collect();
        cuts.extend([0, values.len()]);
        cuts.sort_unstable();
        let before: Vec<f64> = values.iter().map(|value| value * 0.5).collect();
        let of = |range: std::ops::Range<usize>| {
            statistics(DType::F64, &f64s(&values[range.clone()]), Some(&f64s(&before[range]))).unwrap()
        };
        let parts: Vec<Statistics> = cuts.windows(2).map(|pair| of(pair[0]..pair[1])).collect();
        let (all, whole) = (combine(&parts).unwrap(), of(0..values.len()));
        prop_assert_eq!(
            (all.count, all.nan, all.neg_inf, all.pos_inf, all.zeros),
            (whole.count, whole.nan, whole.neg_inf, whole.pos_inf, whole.zeros)
        );
        for (ours, exact) in [(all.min, whole.min), (all.max, whole.max), (all.abs_max, whole.abs_max)] {
            prop_assert!(ours == exact || ours.is_nan() && exact.is_nan());
        }
        let scale = if whole.abs_max.is_nan() { 1.0 } else { whole.abs_max };
        prop_assert!(close(all.mean, whole.mean, scale) && close(all.std, whole.std, scale), "{all:?} {whole:?}");
        for (ours, exact) in [(all.l1, whole.l1), (all.l2, whole.l2)] {
            prop_assert!(close(ours, exact, exact), "{ours} {exact}");
        }
        if !values.is_empty() {
            prop_assert!(close(all.update, whole.update, whole.update));
        }
    }
}

#[test]
fn combination_does_not_overflow_or_lose_small_parts() {
    let part = |values: &[f64]| statistics(DType::F64, &f64s(values), None).unwrap();
    let all = combine(&[part(&[1.5e308]), part(&[-1.5e308])]).unwrap();
    assert!(all.mean == 0.0 && near(all.std, 1.5e308, 1e-15), "{all:?}");
    let tiny = combine(&[part(&[3e-300]), part(&[4e-300])]).unwrap();
    assert!(near(tiny.l2, 5e-300, 1e-15), "{tiny:?}");
    assert_eq!(combine(&[]), None);
    assert!(all.update.is_nan());
}

#[test]
fn ends_of_the_range_are_counted_for_small_floats() {
    let codes: Vec<u8> = (0..=255).chain([0x7e, 0xfe, 1]).collect();
    let of = |dtype| statistics(dtype, &codes, None).unwrap();
    let s = of(DType::F8E4M3FN);
    assert_eq!((s.count, s.nan, s.pos_inf, s.zeros, s.saturated, s.subnormal), (259, 2, 0, 2, 4, 15));
    assert_eq!((s.min, s.max), (-448.0, 448.0));
    let s = of(DType::F8E5M2);
    assert_eq!((s.nan, s.pos_inf, s.neg_inf, s.saturated, s.subnormal), (8, 1, 1, 2, 7));
    assert_eq!((s.min, s.max), (-57344.0, 57344.0));
    let s = of(DType::U8);
    assert_eq!((s.saturated, s.subnormal), (0, 0));
    let parts = [of(DType::F8E4M3FN), of(DType::F8E5M2)];
    let whole = combine(&parts).unwrap();
    assert_eq!((whole.saturated, whole.subnormal), (6, 22));
}

#[test]
fn small_floats_agree_with_float32() {
    let codes: Vec<u8> = random(3000, 4).iter().map(|x| (x * 40.0) as i64 as u8).collect();
    let before: Vec<u8> = codes.iter().map(|code| code.wrapping_mul(7)).collect();
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.small().is_some()) {
        let wide = |codes: &[u8]| dtype.widen(codes).unwrap().iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let ours = statistics(dtype, &codes, Some(&before)).unwrap();
        let theirs = statistics(DType::F32, &wide(&codes), Some(&wide(&before))).unwrap();
        let as_float32 = Statistics { saturated: 0, subnormal: 0, ..ours };
        assert_eq!(format!("{as_float32:?}"), format!("{theirs:?}"), "{dtype:?}");
        let (ours, theirs) = (reduce(dtype, &codes).unwrap(), reduce(DType::F32, &wide(&codes)).unwrap());
        for op in Op::ALL {
            for abs in [false, true] {
                assert_eq!(ours.get(op, abs).as_bytes(), theirs.get(op, abs).as_bytes(), "{dtype:?} {op:?}");
            }
        }
    }
}
