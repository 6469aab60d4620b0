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
            // Without branches: NaN is neither less nor more than what there is.
            let value = clipped(at, *given);
            let is_known = !value.is_nan();
            self.low[at] = if value < self.low[at] { value } else { self.low[at] };
            self.high[at] = if value > self.high[at] { value } else { self.high[at] };
            self.sum[at] += if is_known { f64::from(value) } else { 0.0 };
            self.known[at] += u32::from(is_known);
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

    /// Merges what a bin of a series has into it.
    pub fn put(&mut self, series: usize, bin: u64, open: &Open) {
        self.grow(series + 1);
        let at = series * BLOCK + bin as usize % BLOCK;
        for measure in 0..COUNT {
            let known = open.known[measure];
            if known > 0 {
                let mean = (open.sum[measure] / f64::from(known)) as f32;
                let values = [open.low[measure], clipped(measure, mean), open.high[measure]];
                self.merge(measure, at, (self.n[at], open.n), values.map(|value| code(measure, value)));
            }
        }
        self.n[at] = self.n[at].saturating_add(open.n);
        self.flag[at] |= open.flag;
    }

    /// Merges minimum, mean and maximum into a place, with the numbers of records of both.
    fn merge(&mut self, measure: usize, at: usize, n: (u32, u32), [low, mean, high]: [u16; 3]) {
        let [a, b, c] = [0, 1, 2].map(|plane| self.codes[3 * measure + plane][at]);
        let merged = match (b, mean) {
            (_, 0) => return,
            (0, _) => [low, mean, high],
            _ => {
                let weights = u64::from(n.0) + u64::from(n.1);
                let sum = u64::from(b) * u64::from(n.0) + u64::from(mean) * u64::from(n.1);
                [a.min(low), ((sum + weights / 2) / weights.max(1)) as u16, c.max(high)]
            }
        };
        for (plane, code) in merged.into_iter().enumerate() {
            self.codes[3 * measure + plane][at] = code;
        }
    }

    /// Merges pairs of bins of the level below into the half of this block that they belong to.
    pub fn take(&mut self, below: &Block) {
        self.grow(below.series());
        let half = (below.number as usize % 2) * (BLOCK / 2);
        for from in (0..below.series() * BLOCK).filter(|from| below.n[*from] > 0) {
            let to = from / BLOCK * BLOCK + half + from % BLOCK / 2;
            for measure in 0..COUNT {
                let codes = [0, 1, 2].map(|plane| below.codes[3 * measure + plane][from]);
                self.merge(measure, to, (self.n[to], below.n[from]), codes);
            }
            self.n[to] = self.n[to].saturating_add(below.n[from]);
            self.flag[to] |= below.flag[from];
        }
    }

    /// Takes over a tile, whose size is that of its kind.
    pub fn load(&mut self, kind: u8, group: usize, raw: &[u8]) {
        self.grow((group + 1) * GROUP);
        let cells = GROUP * BLOCK;
        for cell in 0..cells {
            let at = group * cells + cell;
            if kind == COUNTS {
                (self.n[at], self.flag[at]) = counts_at(raw, cell);
            } else {
                for plane in 0..3 {
                    self.codes[3 * usize::from(kind) + plane][at] = code_at(raw, plane, cell);
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
    std::array::from_fn(|plane| value(measure, code_at(raw, plane, at)))
}

fn code_at(raw: &[u8], plane: usize, at: usize) -> u16 {
    let cells = raw.len() / OF_MEASURE;
    let (high, low) = (raw[2 * plane * cells + at], raw[(2 * plane + 1) * cells + at]);
    (u16::from(high) << 8) | u16::from(low)
}

/// Number of records and flags in a bin of a tile of counts.
pub fn counts_at(raw: &[u8], at: usize) -> (u32, u8) {
    let cells = raw.len() / OF_COUNTS;
    (u32::from_le_bytes(std::array::from_fn(|byte| raw[4 * at + byte])), raw[4 * cells + at])
}
