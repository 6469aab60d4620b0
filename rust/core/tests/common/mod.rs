//! Helpers of the reader tests: encoded messages, and a counter of allocated bytes.
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use smdwidgets_core::crc::MaskedCrc;
use smdwidgets_core::proto::encode;
use smdwidgets_core::record;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts the bytes that the current thread has allocated.
pub struct Counting;

// SAFETY: all calls go to the system allocator; counting only accesses cells of this thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller guarantees what the system allocator requires of this layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above; every pointer comes from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(change: isize) {
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + change);
        PEAK.with(|peak| peak.set(peak.get().max(live.get())));
    });
}

/// The result of `work`, and the peak of allocated bytes.
pub fn peak_memory_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let result = work();
    (result, (PEAK.with(Cell::get) - before) as usize)
}

/// A field with a message.
pub fn message(number: u32, fields: &[Vec<u8>]) -> Vec<u8> {
    let mut field = Vec::new();
    encode::bytes(&mut field, number, &fields.concat());
    field
}

/// A field with bytes.
pub fn bytes(number: u32, value: &[u8]) -> Vec<u8> {
    message(number, &[value.to_vec()])
}

/// A field with an integer.
pub fn int(number: u32, value: i64) -> Vec<u8> {
    let mut field = Vec::new();
    encode::int(&mut field, number, value.cast_unsigned());
    field
}

/// A shape.
pub fn shape(sizes: &[i64]) -> Vec<u8> {
    let dims: Vec<_> = sizes.iter().map(|size| message(2, &[int(1, *size)])).collect();
    message(2, &dims)
}

/// The payload of an event with one tensor.
pub fn tensor(fields: &[Vec<u8>]) -> Vec<u8> {
    message(5, &[message(1, &[bytes(1, b"x"), message(8, fields)])])
}

/// A record with a payload, as smdebug writes it.
pub fn smdebug(payload: &[u8]) -> Vec<u8> {
    let footer = MaskedCrc::SMDEBUG_CONSTANT.0.to_le_bytes();
    [&record::header(payload.len() as u64)[..], payload, &footer].concat()
}
