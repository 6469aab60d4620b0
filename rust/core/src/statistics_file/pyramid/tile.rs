//! Bins of a level that are being filled, and their tiles.

use super::measure::{COUNT, clipped, code, value};
use super::{BLOCK, GROUP};

/// Arrays of codes: minimum, mean and maximum of each measure.
const PLANES: usize = 3 * COUNT;
/// The kind of the tiles with counts and flags; those of the measures are before it.
pub const COUNTS: u8 = COUNT as u8;
/// Bytes of a bin in a tile of a measure, and in one of counts.
const OF_MEASURE: usize = 6;
const OF_COUNTS: usize = 5;

/// Bytes of a series in a tile.
pub fn row_size(kind: u8) -> usize {
    BLOCK * if kind == COUNTS { OF_COUNTS } else { OF_MEASURE }
}

/// One bin of a series that records are merged into.
#[derive(Debug, Clone)]
pub struct Open {
    low: [f32; COUNT],
    high: [f32; COUNT],
    sum: [f64; COUNT],
    known: [u32; COUNT],
    n: u32,
    flag: u8,
}

impl Open {
    /// A bin without records.
    pub const EMPTY: Open = Open {
        low: [f32::INFINITY; COUNT],
        high: [f32::NEG_INFINITY; COUNT],
        sum: [0.0; COUNT],
        known: [0; COUNT],
        n: 0,
        flag: 0,
    };

    /// Merges a record.
    pub fn add(&mut self, values: &[f32; COUNT], flag: u8) {
        for (at, given) in values.iter().enumerate() {
            let value = clipped(at, *given);
            if value.is_nan() {
                continue;
            }
            self.low[at] = self.low[at].min(value);
            self.high[at] = self.high[at].max(value);
            self.sum[at] += f64::from(value);
            self.known[at] += 1;
        }
        self.n += 1;
        self.flag |= flag;
    }
}

/// [`BLOCK`] bins of all series at a level.
pub struct Block {
    /// The first bin, divided by [`BLOCK`].
    pub number: u64,
    codes: [Vec<u16>; PLANES],
    n: Vec<u32>,
    flag: Vec<u8>,
}

impl Block {
    /// A block without records.
    pub fn new(number: u64) -> Block {
        Block { number, codes: std::array::from_fn(|_| Vec::new()), n: Vec::new(), flag: Vec::new() }
    }

    fn series(&self) -> usize {
        self.n.len() / BLOCK
    }

    fn grow(&mut self, series: usize) {
        if series > self.series() {
            let size = series.next_multiple_of(GROUP) * BLOCK;
            self.codes.iter_mut().for_each(|plane| plane.resize(size, 0));
            self.n.resize(size, 0);
            self.flag.resize(size, 0);
        }
    }

    /// Stores the bin of a series.
    pub fn put(&mut self, series: usize, bin: u64, open: &Open) {
        self.grow(series + 1);
        let at = series * BLOCK + bin as usize % BLOCK;
        for measure in 0..COUNT {
            let known = open.known[measure];
            if known > 0 {
                let mean = (open.sum[measure] / f64::from(known)) as f32;
                self.codes[3 * measure][at] = code(measure, open.low[measure]);
                self.codes[3 * measure + 1][at] = code(measure, clipped(measure, mean));
                self.codes[3 * measure + 2][at] = code(measure, open.high[measure]);
            }
        }
        self.n[at] = open.n;
        self.flag[at] = open.flag;
    }

    /// Merges pairs of bins of the level below into the half of this block that they belong to.
    pub fn take(&mut self, below: &Block) {
        self.grow(below.series());
        let half = (below.number as usize % 2) * (BLOCK / 2);
        for series in 0..below.series() {
            for pair in 0..BLOCK / 2 {
                let from = series * BLOCK + 2 * pair;
                let to = series * BLOCK + half + pair;
                let n = [below.n[from], below.n[from + 1]];
                if n == [0, 0] {
                    continue;
                }
                self.n[to] = n[0].saturating_add(n[1]);
                self.flag[to] = below.flag[from] | below.flag[from + 1];
                for measure in 0..COUNT {
                    let of = |plane: usize| {
                        [below.codes[3 * measure + plane][from], below.codes[3 * measure + plane][from + 1]]
                    };
                    let [a, b] = of(1);
                    let (low, mean, high) = match (a, b) {
                        (0, 0) => continue,
                        (_, 0) => (of(0)[0], a, of(2)[0]),
                        (0, _) => (of(0)[1], b, of(2)[1]),
                        _ => {
                            let weights = u64::from(n[0]) + u64::from(n[1]);
                            let sum = u64::from(a) * u64::from(n[0]) + u64::from(b) * u64::from(n[1]);
                            (of(0)[0].min(of(0)[1]), ((sum + weights / 2) / weights) as u16, of(2)[0].max(of(2)[1]))
                        }
                    };
                    self.codes[3 * measure][to] = low;
                    self.codes[3 * measure + 1][to] = mean;
                    self.codes[3 * measure + 2][to] = high;
                }
            }
        }
    }

    /// Calls `each` with kind, group and content of the tiles that have something.
    pub fn tiles<E>(&self, mut each: impl FnMut(u8, u32, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut raw = Vec::new();
        for kind in 0..=COUNTS {
            for group in 0..self.series() / GROUP {
                let part = group * GROUP * BLOCK..(group + 1) * GROUP * BLOCK;
                raw.clear();
                if kind == COUNTS {
                    self.n[part.clone()].iter().for_each(|n| raw.extend_from_slice(&n.to_le_bytes()));
                    raw.extend_from_slice(&self.flag[part]);
                } else {
                    // The high bytes of neighbours are equal, which compresses.
                    for plane in 0..3 {
                        let codes = &self.codes[3 * usize::from(kind) + plane][part.clone()];
                        raw.extend(codes.iter().map(|code| (code >> 8) as u8));
                        raw.extend(codes.iter().map(|code| *code as u8));
                    }
                }
                if raw.iter().any(|byte| *byte != 0) {
                    each(kind, group as u32, &raw)?;
                }
            }
        }
        Ok(())
    }
}

/// Minimum, mean and maximum in a bin of a tile of a measure.
pub fn values_at(raw: &[u8], measure: usize, at: usize) -> [f32; 3] {
    let cells = raw.len() / OF_MEASURE;
    std::array::from_fn(|plane| {
        let (high, low) = (raw[2 * plane * cells + at], raw[(2 * plane + 1) * cells + at]);
        value(measure, (u16::from(high) << 8) | u16::from(low))
    })
}

/// Number of records and flags in a bin of a tile of counts.
pub fn counts_at(raw: &[u8], at: usize) -> (u32, u8) {
    let cells = raw.len() / OF_COUNTS;
    (u32::from_le_bytes(std::array::from_fn(|byte| raw[4 * at + byte])), raw[4 * cells + at])
}
