//! Copying large blocks past the processor's caches.
//!
//! An ordinary store first loads the destination into the cache, although it is overwritten, and displaces what the
//! training has there. Streaming stores do neither: a copy of 100 MB takes two thirds of the time.

#![expect(unsafe_code, reason = "streaming stores are intrinsics, and the blocks may be shared with other threads")]

/// Blocks that are smaller stay in the cache, where their next reader finds them.
const STREAMED: usize = 64 << 10;
#[cfg(any(test, target_arch = "x86_64"))]
/// Bytes that are stored at once: a line of the cache, which is written to memory without being loaded if it is whole.
const LINE: usize = 64;

/// Copies a block. Addresses instead of slices, because others may read and write the memory of Python objects meanwhile.
///
/// # Safety
///
/// `from` and `into` point to `length` bytes each, which do not overlap and stay allocated during the call.
pub unsafe fn copy(from: *const u8, into: *mut u8, length: usize) {
    if length < STREAMED {
        // SAFETY: the caller's promise.
        unsafe { into.copy_from_nonoverlapping(from, length) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { stream(from, into, length) };
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn stream(from: *const u8, into: *mut u8, length: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    let head = into.align_offset(LINE).min(length);
    let lines = (length - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: `head`, the lines and the tail lie one after the other within `length`. Each `to` is aligned to a line of
    // 4 x 16 bytes. The instructions are part of the x86-64 baseline. Streaming stores are not ordered with others: without
    // the fence another thread that uses the copy could read what was there before.
    unsafe {
        into.copy_from_nonoverlapping(from, head);
        for line in 0..lines {
            let offset = head + line * LINE;
            let (line, to) = (from.add(offset).cast::<__m128i>(), into.add(offset).cast::<__m128i>());
            let parts: [__m128i; 4] = std::array::from_fn(|part| _mm_loadu_si128(line.add(part)));
            for (part, value) in parts.into_iter().enumerate() {
                _mm_stream_si128(to.add(part), value);
            }
        }
        into.add(tail).copy_from_nonoverlapping(from.add(tail), length - tail);
        _mm_sfence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(from: *const u8, into: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { into.copy_from_nonoverlapping(from, length) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_at_every_alignment() {
        let from: Vec<u8> = (0..STREAMED + 4 * LINE).map(|index| (index * 31 % 251) as u8).collect();
        let mut buffer = vec![0xee; from.len() + 2 * LINE];
        for length in [0, 1, LINE, STREAMED - 1, STREAMED, STREAMED + 1, STREAMED + LINE + 17] {
            for (skipped, offset) in [(0, 0), (1, 0), (0, 1), (3, 63), (63, 64), (16, 8)] {
                buffer.fill(0xee);
                let (source, target) = (&from[skipped..skipped + length], &mut buffer[offset..offset + length]);
                // SAFETY: two slices of the same length of different vectors.
                unsafe { copy(source.as_ptr(), target.as_mut_ptr(), length) };
                assert!(
                    buffer[offset..offset + length] == from[skipped..skipped + length],
                    "{length} bytes at {offset}"
                );
                assert!(
                    buffer[..offset].iter().chain(&buffer[offset + length..]).all(|byte| *byte == 0xee),
                    "beside {length}"
                );
            }
        }
    }
}
