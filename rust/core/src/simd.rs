//! Runtime selection of SIMD instruction sets.
//!
//! A kernel is a plain loop over arrays of lanes, compiled once for each [`InstructionSet`]; the compiler vectorizes it. On
//! targets other than x86-64 the portable variant uses the baseline of the target, such as NEON.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set for which kernels are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum InstructionSet {
    /// The baseline of the target: SSE2 on x86-64, NEON on aarch64.
    Portable = 1,
    /// AVX2, FMA and F16C.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ and VL, in addition to AVX2.
    Avx512 = 3,
}

/// A loop that is compiled for each instruction set.
///
/// `LANES` is a suitable number of `f64` accumulators; `FMA` states that `mul_add` is one instruction. Mark `run` and
/// everything it calls in its loop `#[inline(always)]`.
pub trait Kernel {
    /// The result.
    type Out;
    /// The loop.
    fn run<const LANES: usize, const FMA: bool>(self) -> Self::Out;
}

impl InstructionSet {
    /// The best instruction set of this processor.
    #[inline]
    pub fn best() -> InstructionSet {
        static BEST: AtomicU8 = AtomicU8::new(0);
        match BEST.load(Ordering::Relaxed) {
            1 => InstructionSet::Portable,
            2 => InstructionSet::Avx2,
            3 => InstructionSet::Avx512,
            _ => {
                let best = InstructionSet::available().pop().unwrap_or(InstructionSet::Portable);
                BEST.store(best as u8, Ordering::Relaxed);
                best
            }
        }
    }

    /// The instruction sets of this processor, the best one last.
    pub fn available() -> Vec<InstructionSet> {
        [InstructionSet::Portable, InstructionSet::Avx2, InstructionSet::Avx512]
            .into_iter()
            .filter(|isa| isa.is_available())
            .collect()
    }

    #[cfg(target_arch = "x86_64")]
    fn is_available(self) -> bool {
        let avx2 =
            || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        match self {
            InstructionSet::Portable => true,
            InstructionSet::Avx2 => avx2(),
            InstructionSet::Avx512 => {
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
        self == InstructionSet::Portable
    }

    /// Runs a kernel, with the portable variant if this processor lacks the instruction set.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[cfg(target_arch = "x86_64")]
        {
            if self == InstructionSet::Avx512 && (InstructionSet::best() == self || self.is_available()) {
                // SAFETY: `best` or the check above detected the features on this processor.
                return unsafe { avx512(kernel) };
            }
            if self == InstructionSet::Avx2 && (InstructionSet::best() == self || self.is_available()) {
                // SAFETY: as above.
                return unsafe { avx2(kernel) };
            }
        }
        // aarch64 always has a fused multiply-add.
        kernel.run::<8, { cfg!(target_arch = "aarch64") }>()
    }
}

/// Prefetches the memory at offset `at` of `bytes`, if the target supports it.
#[inline(always)]
pub fn fetch_ahead(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is part of the x86-64 baseline and has no observable effect.
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
    fn every_instruction_set_runs() {
        assert!(InstructionSet::available().contains(&InstructionSet::best()));
        for isa in [InstructionSet::Portable, InstructionSet::Avx2, InstructionSet::Avx512] {
            assert!(isa.run(Lanes) >= 8);
        }
    }
}
