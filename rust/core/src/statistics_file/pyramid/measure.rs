//! What the map shows of a row of statistics.

use super::window::{self, Window};
use crate::statistics_file::Row;

/// Measures of a bin, with the ends of their codes. Sizes are decimal logarithms.
pub const MEASURES: [(&str, f64, f64); 6] = [
    ("size", -30.0, 20.0),
    ("l2", -30.0, 20.0),
    ("update", -30.0, 20.0),
    ("zeros", 0.0, 1.0),
    ("not_finite", 0.0, 1.0),
    ("surprise", -64.0, 64.0),
];
/// The number of them.
pub const COUNT: usize = MEASURES.len();
const SURPRISE: usize = 5;
/// Largest code; 0 is no value.
const LARGEST: f64 = 65535.0;

/// Bits of a record's flags, as in the survey of the widget protocol.
pub mod flag {
    pub const NAN: u8 = 1;
    pub const INFINITE: u8 = 2;
    pub const SUDDEN: u8 = 128;
}

/// A row as the survey has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    /// The number of the tensor.
    pub tensor: u32,
    /// The global step.
    pub step: i64,
    /// The number of the mode.
    pub mode: u8,
    /// NaN, infinite, sudden.
    pub flag: u8,
    /// The measures; NaN is unknown.
    pub values: [f32; COUNT],
    /// The mean of the elements.
    pub mean: f32,
    /// Number of elements.
    pub elements: f32,
    /// The logarithm of the usual size.
    pub usual: f32,
}

impl Record {
    /// The record of a row, whose size is compared with those in the window, and joins them.
    pub fn new(tensor: u32, row: &Row, window: &mut Window) -> Record {
        let all = &row.statistics;
        let (nan, infinite) = (all.nan, all.neg_inf.saturating_add(all.pos_inf));
        let (finite, count) = (all.finite() as f64, all.count as f64);
        let nothing = finite <= 0.0;
        let or_nan = |value: f64| if nothing { f64::NAN } else { value };
        let norm = all.mean.hypot(all.std);
        let size = or_nan(norm.log10()) as f32;
        let l2 = or_nan(all.l2.log10()) as f32;
        let update = or_nan((all.update / all.l2).log10()) as f32;
        let share = |part: f64| if count > 0.0 { (part / count) as f32 } else { f32::NAN };
        let lost = share(nan.saturating_add(infinite) as f64);
        let (surprise, usual) = window.compare(if size.is_nan() { l2 } else { size });
        let mut flag = (u8::from(nan > 0) * flag::NAN) | (u8::from(infinite > 0) * flag::INFINITE);
        if surprise.abs() >= window::DEVIATIONS && all.count != 1 {
            flag |= flag::SUDDEN;
        }
        let values = [size, l2, update, share(all.zeros as f64), lost, surprise];
        let (mean, elements) = (all.mean as f32, count as f32);
        Record { tensor, step: row.step, mode: row.mode.number(), flag, values, mean, elements, usual }
    }

    /// Whether values are NaN or infinite.
    pub fn is_bad(&self) -> bool {
        self.flag & (flag::NAN | flag::INFINITE) != 0
    }

    /// How far the size is from the usual one; 0 of a scalar.
    pub fn amount(&self) -> f32 {
        let surprise = self.values[SURPRISE].abs();
        if self.elements == 1.0 || surprise.is_nan() { 0.0 } else { surprise }
    }
}

/// The code of a value within the range of its measure; 0 is none.
pub fn code(measure: usize, value: f32) -> u16 {
    let (_, low, high) = MEASURES[measure];
    if value.is_nan() {
        return 0;
    }
    // The range of the result is that of the codes.
    (1.0 + ((f64::from(value) - low) * ((LARGEST - 1.0) / (high - low))).round_ties_even()) as u16
}

/// The value of a code; NaN of no value.
pub fn value(measure: usize, code: u16) -> f32 {
    let (_, low, high) = MEASURES[measure];
    if code == 0 { f32::NAN } else { (low + f64::from(code - 1) / (LARGEST - 1.0) * (high - low)) as f32 }
}

/// A value at the nearer end of its measure's range, if it is outside.
pub fn clipped(measure: usize, value: f32) -> f32 {
    let (_, low, high) = MEASURES[measure];
    if value.is_nan() { value } else { value.clamp(low as f32, high as f32) }
}
