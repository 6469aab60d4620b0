//! What the tests of the readers share: messages made by hand, and a watch on what reading allocates.
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

/// Counts what the current thread holds.
pub struct Counting;

// SAFETY: everything is left to the system's allocator; counting touches no memory but this thread's own cells.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller promises for this layout what the system's allocator asks for.
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

/// What `work` returns, and the most bytes it held at once.
pub fn held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let result = work();
    (result, (PEAK.with(Cell::get) - before) as usize)
}

/// A field that holds a message.
pub fn message(number: u32, fields: &[Vec<u8>]) -> Vec<u8> {
    let mut field = Vec::new();
    encode::bytes(&mut field, number, &fields.concat());
    field
}

/// A field that holds bytes.
pub fn bytes(number: u32, value: &[u8]) -> Vec<u8> {
    message(number, &[value.to_vec()])
}

/// A field that holds an integer.
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

/// A record around a payload, as smdebug writes it.
pub fn smdebug(payload: &[u8]) -> Vec<u8> {
    let footer = MaskedCrc::SMDEBUG_CONSTANT.0.to_le_bytes();
    [&record::header(payload.len() as u64)[..], payload, &footer].concat()
}
