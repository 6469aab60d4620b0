//! Which instructions this processor has, found out at run time, and the one place that acts on it.
//!
//! Kernels are plain loops over arrays of lanes. A kernel is compiled once for each [`Path`]; the compiler turns the lanes
//! into whatever registers that path has. Nothing here is x86 only in spirit: elsewhere (NEON, for one) the portable path
//! is compiled for the target's own baseline.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

/// One way in which every kernel is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Path {
    /// What every processor of the target has: SSE2 on x86-64, NEON on aarch64.
    Portable = 1,
    /// AVX2, FMA and F16C.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ, VL on top of that.
    Avx512 = 3,
}

/// A loop to be compiled for each path. `LANES` is a good number of `f64` to keep on the way at once; `FMA` says that
/// `mul_add` is one instruction. Mark `run` and all it calls in its loop `#[inline(always)]`.
pub trait Kernel {
    /// What it gives.
    type Out;
    /// The loop.
    fn run<const LANES: usize, const FMA: bool>(self) -> Self::Out;
}

impl Path {
    /// The best path of this processor.
    #[inline]
    pub fn best() -> Path {
        static BEST: AtomicU8 = AtomicU8::new(0);
        match BEST.load(Ordering::Relaxed) {
            1 => Path::Portable,
            2 => Path::Avx2,
            3 => Path::Avx512,
            _ => {
                let best = Path::available().pop().unwrap_or(Path::Portable);
                BEST.store(best as u8, Ordering::Relaxed);
                best
            }
        }
    }

    /// The paths that this processor can take, the best one last.
    pub fn available() -> Vec<Path> {
        [Path::Portable, Path::Avx2, Path::Avx512].into_iter().filter(|path| path.is_available()).collect()
    }

    #[cfg(target_arch = "x86_64")]
    fn is_available(self) -> bool {
        let avx2 =
            || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        match self {
            Path::Portable => true,
            Path::Avx2 => avx2(),
            Path::Avx512 => {
                avx2()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_available(self) -> bool {
        self == Path::Portable
    }

    /// Runs a kernel as compiled for this path; a path that this processor lacks falls back to the portable one.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[cfg(target_arch = "x86_64")]
        {
            if self == Path::Avx512 && (Path::best() == self || self.is_available()) {
                // SAFETY: the features were seen on this processor, by `best` or by the check above.
                return unsafe { avx512(kernel) };
            }
            if self == Path::Avx2 && (Path::best() == self || self.is_available()) {
                // SAFETY: as above.
                return unsafe { avx2(kernel) };
            }
        }
        // aarch64 always has a fused multiply-add.
        kernel.run::<8, { cfg!(target_arch = "aarch64") }>()
    }
}

/// Asks for the memory at `at` in `bytes`, if it is there, to be fetched meanwhile. A hint: nothing happens where none is known.
#[inline(always)]
pub fn fetch_ahead(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is part of every x86-64 and reads nothing as far as the program can tell.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
fn avx2<K: Kernel>(kernel: K) -> K::Out {
    kernel.run::<8, true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2")]
fn avx512<K: Kernel>(kernel: K) -> K::Out {
    kernel.run::<16, true>()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lanes;
    impl Kernel for Lanes {
        type Out = usize;
        fn run<const LANES: usize, const FMA: bool>(self) -> usize {
            LANES
        }
    }

    #[test]
    fn every_path_runs_somewhere() {
        assert!(Path::available().contains(&Path::best()));
        for path in [Path::Portable, Path::Avx2, Path::Avx512] {
            assert!(path.run(Lanes) >= 8);
        }
    }
}
