//! A global allocator that maps large blocks in huge pages and returns them to the system at once.
//!
//! Values of some megabytes are read, drawn and dropped thousands of times. glibc serves blocks of such sizes from its
//! heaps after the first few and keeps tens of megabytes after they are freed. Here they are separate mappings of huge
//! pages, which take one page fault instead of five hundred. Other systems return large blocks on their own.

#![expect(unsafe_code, reason = "allocators are unsafe by nature")]

use std::alloc::{GlobalAlloc, Layout, System};

/// The system allocator, with huge-page mappings for large blocks.
pub struct HugePageAllocator;

#[cfg(not(target_os = "linux"))]
// SAFETY: delegates to the system allocator.
unsafe impl GlobalAlloc for HugePageAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::c_void;
    use std::ptr;

    use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, munmap};

    use super::{GlobalAlloc, HugePageAllocator, Layout, System};

    /// The size of a huge page. Smaller blocks gain nothing from a mapping.
    const HUGE: usize = 2 << 20;
    /// The smallest page size; mappings are at least this aligned.
    const PAGE: usize = 4 << 10;

    fn is_large(layout: Layout) -> bool {
        layout.size() >= HUGE && layout.align() <= PAGE
    }

    /// Rounds up to whole huge pages: a partial one would be backed by small pages.
    fn round_up(size: usize) -> usize {
        size.div_ceil(HUGE) * HUGE
    }

    /// A mapping aligned to huge pages; null if the system has no memory.
    fn map(size: usize) -> *mut u8 {
        let Some(capacity) = round_up(size).checked_add(HUGE) else { return ptr::null_mut() };
        // SAFETY: creates a new mapping at an address of the system's choice.
        let Ok(start) = (unsafe {
            mmap_anonymous(ptr::null_mut(), capacity, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }) else {
            return ptr::null_mut();
        };
        let before = start.cast::<u8>().align_offset(HUGE);
        let block = start.cast::<u8>().wrapping_add(before);
        let behind = block.wrapping_add(round_up(size));
        // SAFETY: the mapping is new and not shared. `madvise` fails harmlessly on systems without huge pages.
        unsafe {
            if before > 0 {
                let _ = munmap(start, before);
            }
            if HUGE > before {
                let _ = munmap(behind.cast::<c_void>(), HUGE - before);
            }
            let _ = madvise(block.cast::<c_void>(), round_up(size), Advice::LinuxHugepage);
        }
        block
    }

    // SAFETY: a block comes from `map` exactly if its layout is large, and is freed the same way. Mappings are zeroed and
    // page-aligned, which covers the alignment of a large layout.
    unsafe impl GlobalAlloc for HugePageAllocator {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller upholds the contract of the system allocator.
            if is_large(layout) { map(layout.size()) } else { unsafe { System.alloc(layout) } }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as above.
            if is_large(layout) { map(layout.size()) } else { unsafe { System.alloc_zeroed(layout) } }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            if is_large(layout) {
                // SAFETY: the block is a mapping of this size.
                let _ = unsafe { munmap(block.cast(), round_up(layout.size())) };
            } else {
                // SAFETY: as above.
                unsafe { System.dealloc(block, layout) }
            }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // SAFETY: the caller guarantees that the size, rounded up to the alignment, does not overflow.
            let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
            let (before, after) = (round_up(layout.size()), round_up(size));
            match (is_large(layout), is_large(new_layout)) {
                // SAFETY: as above.
                (false, false) => unsafe { System.realloc(block, layout, size) },
                (true, true) if before == after => block,
                // SAFETY: the block is a mapping of this size.
                (true, true) => unsafe { mremap(block.cast(), before, after, MremapFlags::MAYMOVE) }
                    .map_or(ptr::null_mut(), <*mut c_void>::cast),
                // SAFETY: both blocks have at least this size; the old one is freed only after the copy.
                _ => unsafe {
                    let moved = self.alloc(new_layout);
                    if !moved.is_null() {
                        ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 8] = [1, 100_000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 4_000_200, 9 << 20, 64 << 10];

    /// A block with marks at both ends.
    fn marked(size: usize) -> (*mut u8, Layout) {
        let layout = Layout::from_size_align(size, 8).unwrap();
        // SAFETY: no size is 0, and all writes are within the block.
        unsafe {
            let block = HugePageAllocator.alloc_zeroed(layout);
            assert!(!block.is_null() && block.align_offset(8) == 0);
            assert!((0..size).step_by(997).all(|at| *block.add(at) == 0));
            *block = 7;
            *block.add(size - 1) = 9;
            (block, layout)
        }
    }

    #[test]
    fn realloc_preserves_content() {
        for from in SIZES {
            for to in SIZES {
                let (block, layout) = marked(from);
                // SAFETY: a block of this layout, accessed within its size.
                unsafe {
                    let moved = HugePageAllocator.realloc(block, layout, to);
                    assert!(!moved.is_null());
                    assert_eq!(*moved, if from == 1 { 9 } else { 7 }, "{from} to {to}");
                    if to >= from {
                        assert_eq!(*moved.add(from - 1), 9, "{from} to {to}");
                    }
                    *moved.add(to - 1) = 1;
                    HugePageAllocator.dealloc(moved, Layout::from_size_align(to, 8).unwrap());
                }
            }
        }
    }

    #[test]
    fn impossible_size_returns_null() {
        let layout = Layout::from_size_align(isize::MAX as usize - 7, 8).unwrap();
        // SAFETY: the size is not 0.
        assert!(unsafe { HugePageAllocator.alloc(layout) }.is_null());
    }
}
