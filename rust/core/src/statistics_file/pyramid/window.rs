//! How far a size is from the usual one: the same comparison as `smdwidgets.anomalies.sizes`, value by value.

/// Earlier sizes that a size is compared with, and the fewest of them.
pub const WINDOW: usize = 32;
const FIRST: usize = 8;
/// Sizes that are compared at a time.
const LANES: usize = 8;
/// The least standard deviation of a logarithm.
const SPREAD: f32 = 0.04;
/// The largest surprise.
const LARGEST: f32 = 64.0;
/// Surprises from this one on stand out.
pub const DEVIATIONS: f32 = 12.0;

/// The last sizes of a series.
#[derive(Debug, Clone)]
pub struct Window {
    /// The sizes in a ring, in the order in which they came.
    ring: [f32; WINDOW],
    /// Those that are finite, in ascending order, and infinity in all other places.
    sorted: [f32; WINDOW],
    /// Number of finite sizes, and of sizes of 0.
    finite: u8,
    zeros: u8,
    /// The next place in the ring.
    next: u8,
}

impl Window {
    /// A window without sizes.
    pub fn new() -> Window {
        Window { ring: [f32::NAN; WINDOW], sorted: [f32::INFINITY; WINDOW], finite: 0, zeros: 0, next: 0 }
    }

    /// The sizes from the oldest one on; NaN is none.
    pub fn sizes(&self) -> [f32; WINDOW] {
        std::array::from_fn(|at| self.ring[(usize::from(self.next) + at) % WINDOW])
    }

    /// The window that has these sizes.
    pub fn of(sizes: &[f32; WINDOW]) -> Window {
        let mut window = Window::new();
        sizes.iter().for_each(|size| window.push(*size));
        window
    }

    /// Surprise and usual size of the next size, a logarithm, which then belongs to the window.
    pub fn compare(&mut self, size: f32) -> (f32, f32) {
        let found = self.judge(size);
        self.push(size);
        found
    }

    fn judge(&self, size: f32) -> (f32, f32) {
        let count = usize::from(self.finite);
        if count == 0 {
            return (f32::NAN, f32::NAN);
        }
        let sorted = &self.sorted[..count];
        let middle = 0.5 * (sorted[(count - 1) / 2] + sorted[count / 2]);
        if count < FIRST {
            return (f32::NAN, middle);
        }
        if size == f32::NEG_INFINITY && 8 * usize::from(self.zeros) > usize::from(self.zeros) + count {
            return (0.0, middle);
        }
        let mut padded = [f32::INFINITY; WINDOW + LANES];
        padded[..WINDOW].copy_from_slice(&self.sorted);
        let [below, above] = [(count - 1) / 2, count / 2].map(|nearer| distance(&padded, count, middle, nearer));
        let spread = (1.4826 * (0.5 * (below + above))).max(SPREAD);
        let deviation = (size - middle) / spread;
        (if deviation.is_nan() { deviation } else { deviation.clamp(-LARGEST, LARGEST) }, middle)
    }

    fn push(&mut self, size: f32) {
        let place = usize::from(self.next);
        let old = std::mem::replace(&mut self.ring[place], size);
        self.next = ((place + 1) % WINDOW) as u8;
        if old.is_finite() {
            let mut after = [f32::INFINITY; WINDOW];
            after[..WINDOW - 1].copy_from_slice(&self.sorted[1..]);
            for (each, next) in self.sorted.iter_mut().zip(after) {
                *each = if *each < old { *each } else { next };
            }
            self.finite -= 1;
        } else if old == f32::NEG_INFINITY {
            self.zeros -= 1;
        }
        if size.is_finite() {
            let mut before = [f32::NEG_INFINITY; WINDOW];
            before[1..].copy_from_slice(&self.sorted[..WINDOW - 1]);
            for (each, before) in self.sorted.iter_mut().zip(before) {
                *each = larger(before, smaller(size, *each));
            }
            self.finite += 1;
        } else if size == f32::NEG_INFINITY {
            self.zeros += 1;
        }
    }
}

/// The distance from the middle that so many finite sizes are nearer than. These and the one at that distance are
/// neighbours; of all such neighbours, they are nearest. Several are compared at a time; behind the sizes is infinity.
fn distance(sorted: &[f32; WINDOW + LANES], count: usize, middle: f32, nearer: usize) -> f32 {
    let mut least = [f32::INFINITY; LANES];
    for begin in (0..count - nearer).step_by(LANES) {
        let (low, high) = (&sorted[begin..begin + LANES], &sorted[begin + nearer..begin + nearer + LANES]);
        for ((least, low), high) in least.iter_mut().zip(low).zip(high) {
            *least = smaller(larger(middle - low, high - middle), *least);
        }
    }
    least.into_iter().fold(f32::INFINITY, smaller)
}

/// Of numbers, which these are; `f32::max` also handles NaN, which takes longer.
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_compare_with_the_median_of_the_last_ones() {
        let mut window = Window::new();
        let found: Vec<f32> = (0..22)
            .map(|at| match at {
                20 => 1.0,
                21 => f32::NEG_INFINITY,
                at => 0.01 * (at % 2) as f32,
            })
            .map(|size| window.compare(size).0)
            .collect();
        assert!(found[..8].iter().all(|each| each.is_nan()));
        for (at, expected) in [(8, -0.125), (19, 0.25), (20, 24.875), (21, -64.0)] {
            assert!((found[at] - expected).abs() < 0.05, "{at}: {}", found[at]);
        }
    }

    #[test]
    fn a_window_forgets() {
        let mut window = Window::new();
        for _ in 0..WINDOW {
            window.compare(f32::NEG_INFINITY);
        }
        for at in 0..WINDOW {
            window.compare(at as f32);
        }
        assert_eq!((window.finite, window.zeros), (32, 0));
        assert!(window.sorted.is_sorted());
        assert_eq!(window.sorted[0], 0.0);
        assert_eq!(window.judge(15.5), (0.0, 15.5));
        assert_eq!(Window::of(&window.sizes()).judge(3.5), window.judge(3.5));
    }
}
