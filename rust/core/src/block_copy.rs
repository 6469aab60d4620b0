//! Copying large blocks past the processor's caches.
//!
//! An ordinary store first loads the destination into the cache, although it is overwritten, and displaces what the
//! training has there. Streaming stores do neither: a copy of 100 MB takes two thirds of the time.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "streaming stores are intrinsics"))]

/// Blocks that are smaller stay in the cache, where their next reader finds them.
const STREAMED: usize = 64 << 10;
#[cfg(any(test, target_arch = "x86_64"))]
/// Bytes that are stored at once: a line of the cache, which is written to memory without being loaded if it is whole.
const LINE: usize = 64;

/// Copies a block of the same length.
///
/// # Panics
///
/// If the lengths differ.
pub fn copy(from: &[u8], into: &mut [u8]) {
    assert_eq!(from.len(), into.len(), "blocks of different lengths");
    if from.len() < STREAMED {
        into.copy_from_slice(from);
    } else {
        stream(from, into);
    }
}

#[cfg(target_arch = "x86_64")]
fn stream(from: &[u8], into: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    let (from_head, from) = from.split_at(into.as_ptr().align_offset(LINE).min(from.len()));
    let (head, into) = into.split_at_mut(from_head.len());
    head.copy_from_slice(from_head);
    let (from, from_tail) = from.as_chunks::<LINE>();
    let (into, tail) = into.as_chunks_mut::<LINE>();
    for (line, to) in from.iter().zip(into) {
        let (line, to) = (line.as_ptr().cast::<__m128i>(), to.as_mut_ptr().cast::<__m128i>());
        // SAFETY: both are lines of 4 x 16 bytes, and `to` is aligned to a line. The instructions are part of the x86-64
        // baseline.
        unsafe {
            let parts: [__m128i; 4] = std::array::from_fn(|part| _mm_loadu_si128(line.add(part)));
            for (part, value) in parts.into_iter().enumerate() {
                _mm_stream_si128(to.add(part), value);
            }
        }
    }
    tail.copy_from_slice(from_tail);
    // SAFETY: part of the baseline. Streaming stores are not ordered with others: without the fence another thread that
    // uses the copy could read what was there before.
    unsafe { _mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn stream(from: &[u8], into: &mut [u8]) {
    into.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_at_every_alignment() {
        let from: Vec<u8> = (0..STREAMED + 4 * LINE).map(|at| (at * 31 % 251) as u8).collect();
        let mut room = vec![0xee; from.len() + 2 * LINE];
        for length in [0, 1, LINE, STREAMED - 1, STREAMED, STREAMED + 1, STREAMED + LINE + 17] {
            for (skipped, at) in [(0, 0), (1, 0), (0, 1), (3, 63), (63, 64), (16, 8)] {
                room.fill(0xee);
                copy(&from[skipped..skipped + length], &mut room[at..at + length]);
                assert!(room[at..at + length] == from[skipped..skipped + length], "{length} bytes at {at}");
                assert!(room[..at].iter().chain(&room[at + length..]).all(|byte| *byte == 0xee), "beside {length}");
            }
        }
    }
}
