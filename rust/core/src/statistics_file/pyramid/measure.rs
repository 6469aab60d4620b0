//! What the map shows of a row of statistics.

use super::window;
use crate::statistics_file::arrow::Columns;

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

/// A record before it was compared with earlier ones.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    step: i64,
    tensor: u32,
    /// All measures but the surprise.
    values: [f32; SURPRISE],
    mean: f32,
    elements: f32,
    mode: u8,
    flag: u8,
}

/// Makes samples of rows.
pub struct Sampler {
    /// A number of elements and its logarithm. Neighbours mostly have the same.
    elements: (u64, f64),
}

impl Sampler {
    pub fn new() -> Sampler {
        Sampler { elements: (1, 0.0) }
    }

    /// The sample of a row.
    pub fn sample(&mut self, tensor: u32, columns: &Columns, at: usize) -> Sample {
        let (count, nan) = (columns.count[at], columns.nan[at]);
        let infinite = columns.neg_inf[at].saturating_add(columns.pos_inf[at]);
        let lost = nan.saturating_add(infinite);
        let finite = count.saturating_sub(lost);
        let (mean, update) = (columns.mean[at], columns.update[at]);
        let (size, l2, change) = if finite == 0 {
            (f64::NAN, f64::NAN, f64::NAN)
        } else {
            if self.elements.0 != finite {
                self.elements = (finite, decimal_log(finite as f64));
            }
            let size = log_of_norm(mean, columns.std[at]);
            let l2 = size + 0.5 * self.elements.1;
            (size, l2, decimal_log(update) - l2)
        };
        let elements = count as f64;
        let share = |part: u64| {
            if count == 0 {
                f32::NAN
            } else if part == 0 {
                0.0
            } else {
                (part as f64 / elements) as f32
            }
        };
        let flag = (u8::from(nan > 0) * flag::NAN) | (u8::from(infinite > 0) * flag::INFINITE);
        let values = [size as f32, l2 as f32, change as f32, share(columns.zeros[at]), share(lost)];
        let (step, mode) = (columns.step[at], columns.mode[at]);
        Sample { step, tensor, values, mean: mean as f32, elements: elements as f32, mode, flag }
    }
}

fn decimal_log(value: f64) -> f64 {
    value.ln() * std::f64::consts::LOG10_E
}

/// The decimal logarithm of the hypotenuse of two numbers.
fn log_of_norm(a: f64, b: f64) -> f64 {
    let square = a * a + b * b;
    // Beyond it, squares lose digits.
    if (1e-280..1e280).contains(&square) { 0.5 * decimal_log(square) } else { decimal_log(a.hypot(b)) }
}

impl Sample {
    /// The step.
    pub fn step(&self) -> i64 {
        self.step
    }

    /// The number of the tensor.
    pub fn tensor(&self) -> u32 {
        self.tensor
    }

    /// The number of the mode.
    pub fn mode(&self) -> u8 {
        self.mode
    }

    /// The logarithm of the size that is compared with earlier ones.
    #[inline]
    pub fn size(&self) -> f32 {
        let [size, l2, ..] = self.values;
        if size.is_nan() { l2 } else { size }
    }

    /// The record, whose size has this surprise and this usual size.
    pub fn record(&self, (surprise, usual): (f32, f32)) -> Record {
        let [size, l2, update, zeros, lost] = self.values;
        let mut flag = self.flag;
        if surprise.abs() >= window::DEVIATIONS && self.elements != 1.0 {
            flag |= flag::SUDDEN;
        }
        let values = [size, l2, update, zeros, lost, surprise];
        let Sample { step, tensor, mean, elements, mode, .. } = *self;
        Record { tensor, step, mode, flag, values, mean, elements, usual }
    }
}

impl Record {
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

/// A value at the nearer end of its measure's range, if it is outside; NaN stays.
pub fn clipped(measure: usize, value: f32) -> f32 {
    const ENDS: [(f32, f32); COUNT] = {
        let mut ends = [(0.0, 0.0); COUNT];
        let mut at = 0;
        while at < COUNT {
            ends[at] = (MEASURES[at].1 as f32, MEASURES[at].2 as f32);
            at += 1;
        }
        ends
    };
    let (low, high) = ENDS[measure];
    let value = if value < low { low } else { value };
    if value > high { high } else { value }
}
