//! How far a size is from the usual one: the same comparison as `smdwidgets.anomalies.sizes`, value by value.
//!
//! Several series are compared at the same time, one in each lane. Each keeps its last sizes sorted; the sizes of a rank
//! lie beside each other, so that one instruction moves those of all lanes.

use crate::simd::{InstructionSet, Kernel};

/// Earlier sizes that a size is compared with, and the fewest of them.
pub const WINDOW: usize = 32;
const FIRST: usize = 8;
/// Series that are compared at the same time.
pub const LANES: usize = 16;
/// The least standard deviation of a logarithm.
const SPREAD: f32 = 0.04;
/// The largest surprise.
const LARGEST: f32 = 64.0;
/// Surprises from this one on stand out.
pub const DEVIATIONS: f32 = 12.0;

/// The sizes that follow in each lane; `None` of a lane in which none does.
pub type Turn = [Option<f32>; LANES];
/// Surprise and usual size of each lane.
pub type Found = [(f32, f32); LANES];

/// The last sizes of [`LANES`] series.
#[derive(Debug, Clone)]
pub struct Windows {
    /// The sizes of each series in a ring, in the order in which they came.
    rings: [[f32; WINDOW]; LANES],
    /// Those that are finite, in ascending order, and infinity in all other places.
    sorted: [[f32; LANES]; WINDOW],
    /// Number of finite sizes, and of sizes of 0.
    finite: [u8; LANES],
    zeros: [u8; LANES],
    /// The next place in the ring.
    next: [u8; LANES],
}

impl Windows {
    /// Windows without sizes.
    pub fn new() -> Windows {
        Windows {
            rings: [[f32::NAN; WINDOW]; LANES],
            sorted: [[f32::INFINITY; LANES]; WINDOW],
            finite: [0; LANES],
            zeros: [0; LANES],
            next: [0; LANES],
        }
    }

    /// The sizes of a series from the oldest one on; NaN is none.
    pub fn sizes(&self, lane: usize) -> [f32; WINDOW] {
        std::array::from_fn(|at| self.rings[lane][(usize::from(self.next[lane]) + at) % WINDOW])
    }

    /// Gives a series these sizes.
    pub fn set(&mut self, lane: usize, sizes: &[f32; WINDOW]) {
        let count = |is: fn(&f32) -> bool| sizes.iter().filter(|size| is(size)).count() as u8;
        self.rings[lane] = *sizes;
        self.next[lane] = 0;
        self.finite[lane] = count(|size| size.is_finite());
        self.zeros[lane] = count(|size| *size == f32::NEG_INFINITY);
        let mut sorted = sizes.map(finite_or_last);
        sorted.sort_unstable_by(f32::total_cmp);
        self.sorted.iter_mut().zip(sorted).for_each(|(rank, size)| rank[lane] = size);
    }

    /// Surprise and usual size of sizes that follow each other, logarithms, each of which then belongs to its window.
    pub fn compare(&mut self, turns: &[Turn], found: &mut [Found]) {
        InstructionSet::best().run(Compare { windows: self, turns, found });
    }

    #[inline(always)]
    fn judge(&self, sizes: &Turn) -> Found {
        let present = || (0..LANES).filter(|lane| sizes[*lane].is_some());
        let count = present().map(|lane| self.finite[lane]).max().unwrap_or(0);
        let mut found = if usize::from(count) < FIRST {
            [(f32::NAN, f32::NAN); LANES]
        } else {
            self.judge_all(count.into(), sizes)
        };
        let is_usual = |lane: usize| usize::from(count) >= FIRST && self.finite[lane] == count && self.zeros[lane] == 0;
        for lane in present().filter(|lane| !is_usual(*lane)) {
            found[lane] = self.judge_one(lane, sizes[lane].unwrap_or(f32::NAN));
        }
        found
    }

    /// Judges the sizes of lanes that have so many finite sizes and none of 0.
    #[inline(always)]
    fn judge_all(&self, count: usize, sizes: &Turn) -> Found {
        let (below, above) = ((count - 1) / 2, count / 2);
        let mut middle = [0.0; LANES];
        for (middle, (low, high)) in middle.iter_mut().zip(self.sorted[below].iter().zip(&self.sorted[above])) {
            *middle = 0.5 * (low + high);
        }
        let below = self.distances(count, &middle, below);
        let above = self.distances(count, &middle, above);
        let mut found = [(f32::NAN, f32::NAN); LANES];
        for lane in 0..LANES {
            let size = sizes[lane].unwrap_or(f32::NAN);
            found[lane] = (surprise(size, middle[lane], below[lane], above[lane]), middle[lane]);
        }
        found
    }

    /// The distance from the middle of each lane that so many of `count` finite sizes are nearer than. These and the one
    /// at that distance are neighbours; of all such neighbours, they are nearest.
    #[inline(always)]
    fn distances(&self, count: usize, middle: &[f32; LANES], nearer: usize) -> [f32; LANES] {
        let mut least = [f32::INFINITY; LANES];
        for begin in 0..count - nearer {
            let begin = one_by_one(begin);
            let (low, high) = (&self.sorted[begin], &self.sorted[(begin + nearer) % WINDOW]);
            for lane in 0..LANES {
                least[lane] = smaller(larger(middle[lane] - low[lane], high[lane] - middle[lane]), least[lane]);
            }
        }
        least
    }

    fn judge_one(&self, lane: usize, size: f32) -> (f32, f32) {
        let count = usize::from(self.finite[lane]);
        if count == 0 {
            return (f32::NAN, f32::NAN);
        }
        let sorted = |rank: usize| self.sorted[rank][lane];
        let middle = 0.5 * (sorted((count - 1) / 2) + sorted(count / 2));
        if count < FIRST {
            return (f32::NAN, middle);
        }
        let zeros = usize::from(self.zeros[lane]);
        if size == f32::NEG_INFINITY && 8 * zeros > zeros + count {
            return (0.0, middle);
        }
        let [below, above] = [(count - 1) / 2, count / 2].map(|nearer| {
            let distances = (0..count - nearer).map(|at| larger(middle - sorted(at), sorted(at + nearer) - middle));
            distances.fold(f32::INFINITY, smaller)
        });
        (surprise(size, middle, below, above), middle)
    }

    #[inline(always)]
    fn push(&mut self, sizes: &Turn) {
        let (mut old, mut new) = ([f32::INFINITY; LANES], [f32::INFINITY; LANES]);
        for lane in 0..LANES {
            let Some(size) = sizes[lane] else { continue };
            let place = usize::from(self.next[lane]) % WINDOW;
            let before = std::mem::replace(&mut self.rings[lane][place], size);
            self.next[lane] = ((place + 1) % WINDOW) as u8;
            self.finite[lane] = self.finite[lane] + u8::from(size.is_finite()) - u8::from(before.is_finite());
            self.zeros[lane] += u8::from(size == f32::NEG_INFINITY);
            self.zeros[lane] -= u8::from(before == f32::NEG_INFINITY);
            (old[lane], new[lane]) = (finite_or_last(before), finite_or_last(size));
        }
        // What is larger than the old size moves down a rank, and what is larger than the new one up.
        let mut below = [f32::NEG_INFINITY; LANES];
        for rank in 0..WINDOW {
            let rank = one_by_one(rank);
            let own = self.sorted[rank];
            let next = if rank + 1 < WINDOW { self.sorted[rank + 1] } else { [f32::INFINITY; LANES] };
            let mut kept = [0.0; LANES];
            for lane in 0..LANES {
                kept[lane] = if own[lane] < old[lane] { own[lane] } else { next[lane] };
                self.sorted[rank][lane] = larger(below[lane], smaller(new[lane], kept[lane]));
            }
            below = kept;
        }
    }
}

/// What [`Windows::compare`] does, for each instruction set.
struct Compare<'c> {
    windows: &'c mut Windows,
    turns: &'c [Turn],
    found: &'c mut [Found],
}

impl Kernel for Compare<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const LANES: usize, const FMA: bool>(self) {
        for (sizes, found) in self.turns.iter().zip(self.found) {
            *found = self.windows.judge(sizes);
            self.windows.push(sizes);
        }
    }
}

/// How far a size is from the middle of sizes, with the two distances in the middle of all distances.
#[inline(always)]
fn surprise(size: f32, middle: f32, below: f32, above: f32) -> f32 {
    let spread = larger(1.4826 * (0.5 * (below + above)), SPREAD);
    let deviation = (size - middle) / spread;
    // Without `clamp`, which takes longer; NaN stays.
    let deviation = if deviation < -LARGEST { -LARGEST } else { deviation };
    if deviation > LARGEST { LARGEST } else { deviation }
}

/// A rank that the compiler does not see: it would make vectors of ranks, which are far from each other, and not of lanes.
#[inline(always)]
fn one_by_one(rank: usize) -> usize {
    std::hint::black_box(rank) % WINDOW
}

/// A size that is finite, or infinity, which is behind all of them.
#[inline(always)]
fn finite_or_last(size: f32) -> f32 {
    if size.is_finite() { size } else { f32::INFINITY }
}

/// Of numbers, which these are; `f32::max` also handles NaN, which takes longer.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares one size of a lane.
    fn compare(windows: &mut Windows, lane: usize, size: f32) -> (f32, f32) {
        let (mut turn, mut found) = ([None; LANES], [[(0.0, 0.0); LANES]]);
        turn[lane] = Some(size);
        windows.compare(&[turn], &mut found);
        found[0][lane]
    }

    #[test]
    fn sizes_compare_with_the_median_of_the_last_ones() {
        let mut windows = Windows::new();
        let found: Vec<f32> = (0..22)
            .map(|at| match at {
                20 => 1.0,
                21 => f32::NEG_INFINITY,
                at => 0.01 * (at % 2) as f32,
            })
            .map(|size| compare(&mut windows, 3, size).0)
            .collect();
        assert!(found[..8].iter().all(|each| each.is_nan()));
        for (at, expected) in [(8, -0.125), (19, 0.25), (20, 24.875), (21, -64.0)] {
            assert!((found[at] - expected).abs() < 0.05, "{at}: {}", found[at]);
        }
    }

    #[test]
    fn a_window_forgets() {
        let mut windows = Windows::new();
        for _ in 0..WINDOW {
            compare(&mut windows, 0, f32::NEG_INFINITY);
        }
        for at in 0..WINDOW {
            compare(&mut windows, 0, at as f32);
        }
        assert_eq!((windows.finite[0], windows.zeros[0]), (32, 0));
        assert!(windows.sorted.is_sorted_by_key(|sizes| sizes[0]));
        assert_eq!(windows.sorted[0][0], 0.0);
        let mut same = Windows::new();
        same.set(5, &windows.sizes(0));
        assert_eq!(windows.judge_one(0, 15.5), (0.0, 15.5));
        assert_eq!(same.judge_one(5, 3.5), windows.judge_one(0, 3.5));
        assert_eq!(compare(&mut same, 5, 3.5), compare(&mut windows, 0, 3.5));
    }

    /// Sizes of a lane at a turn: of each one some are missing, of 0 or not known, and the lanes differ.
    fn size(lane: usize, turn: usize) -> Option<f32> {
        let number = (lane * 2_654_435_761 + turn * 40_503 + turn * turn * lane) % 1009;
        match number % (lane + 7) {
            0 => None,
            1 if lane > 3 => Some(f32::NEG_INFINITY),
            2 if lane > 7 => Some(f32::NAN),
            _ => Some((number as f32).ln()),
        }
    }

    #[test]
    fn lanes_do_not_depend_on_each_other() {
        let turns: Vec<Turn> = (0..300).map(|turn| std::array::from_fn(|lane| size(lane, turn))).collect();
        for isa in InstructionSet::available() {
            let (mut windows, mut found) = (Windows::new(), vec![[(0.0, 0.0); LANES]; turns.len()]);
            isa.run(Compare { windows: &mut windows, turns: &turns, found: &mut found });
            for lane in 0..LANES {
                let mut earlier: Vec<f32> = Vec::new();
                for (turn, found) in turns.iter().zip(&found) {
                    let Some(size) = turn[lane] else { continue };
                    let (surprise, usual) = expected(&earlier[earlier.len().saturating_sub(WINDOW)..], size);
                    let bits = |numbers: (f32, f32)| (numbers.0.to_bits(), numbers.1.to_bits());
                    assert_eq!(bits(found[lane]), bits((surprise, usual)), "lane {lane}");
                    earlier.push(size);
                }
            }
        }
    }

    /// Surprise and usual size by the definition, with a sorted list of distances.
    fn expected(earlier: &[f32], size: f32) -> (f32, f32) {
        let median = |sorted: &[f32]| 0.5 * (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]);
        let mut finite: Vec<f32> = earlier.iter().copied().filter(|size| size.is_finite()).collect();
        finite.sort_by(f32::total_cmp);
        if finite.is_empty() {
            return (f32::NAN, f32::NAN);
        }
        let middle = median(&finite);
        let zeros = earlier.iter().filter(|size| **size == f32::NEG_INFINITY).count();
        if finite.len() < FIRST {
            return (f32::NAN, middle);
        }
        if size == f32::NEG_INFINITY && 8 * zeros > zeros + finite.len() {
            return (0.0, middle);
        }
        let mut distances: Vec<f32> = finite.iter().map(|size| (size - middle).abs()).collect();
        distances.sort_by(f32::total_cmp);
        let surprise = (size - middle) / (1.4826 * median(&distances)).max(SPREAD);
        (surprise.clamp(-LARGEST, LARGEST), middle)
    }
}
