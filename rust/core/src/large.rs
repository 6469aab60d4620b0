//! Large blocks of memory, which go back to the system when they are let go.
//!
//! A value of some megabytes is read, pictured and dropped a thousand times over. glibc takes blocks of such sizes from heaps of
//! its own once it has seen them come and go, and keeps there what was let go: tens of megabytes that a kernel holds for nothing.
//! So they are maps of their own here, made of huge pages where the system has them: one touch in place of five hundred.
//! On other systems large blocks go back by themselves.

#![expect(unsafe_code, reason = "an allocator hands out addresses")]

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, but for large blocks.
pub struct Large;

#[cfg(not(target_os = "linux"))]
// SAFETY: the system's allocator, as it is.
unsafe impl GlobalAlloc for Large {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that it wants.
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

    use super::{GlobalAlloc, Large, Layout, System};

    /// A huge page: what is smaller gains nothing from a map of its own.
    const HUGE: usize = 2 << 20;
    /// All systems' pages are at least this, and maps begin with one.
    const PAGE: usize = 4 << 10;

    fn is_large(layout: Layout) -> bool {
        layout.size() >= HUGE && layout.align() <= PAGE
    }

    /// Whole huge pages, since half a one would come in small ones.
    fn whole(size: usize) -> usize {
        size.div_ceil(HUGE) * HUGE
    }

    /// A map that begins where a huge page can; null where there is no room.
    fn map(size: usize) -> *mut u8 {
        let Some(room) = whole(size).checked_add(HUGE) else { return ptr::null_mut() };
        // SAFETY: a new map, wherever the system likes.
        let Ok(start) =
            (unsafe { mmap_anonymous(ptr::null_mut(), room, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) })
        else {
            return ptr::null_mut();
        };
        let before = start.cast::<u8>().align_offset(HUGE);
        let block = start.cast::<u8>().wrapping_add(before);
        let behind = block.wrapping_add(whole(size));
        // SAFETY: ours, and nobody knows of it yet. A system without huge pages says so, and that is no fault.
        unsafe {
            if before > 0 {
                let _ = munmap(start, before);
            }
            if HUGE > before {
                let _ = munmap(behind.cast::<c_void>(), HUGE - before);
            }
            let _ = madvise(block.cast::<c_void>(), whole(size), Advice::LinuxHugepage);
        }
        block
    }

    // SAFETY: a block comes from `map` if and only if its layout is large, and goes the way that it came; maps are zero, and
    // begin with a page, which is as much alignment as a large layout asks for.
    unsafe impl GlobalAlloc for Large {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's promises are those that the system's allocator wants.
            if is_large(layout) { map(layout.size()) } else { unsafe { System.alloc(layout) } }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as above.
            if is_large(layout) { map(layout.size()) } else { unsafe { System.alloc_zeroed(layout) } }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            if is_large(layout) {
                // SAFETY: a map of this size is what the block is.
                let _ = unsafe { munmap(block.cast(), whole(layout.size())) };
            } else {
                // SAFETY: as above.
                unsafe { System.dealloc(block, layout) }
            }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // SAFETY: the caller promises that the size, rounded up to the alignment, is no overflow.
            let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
            let (before, after) = (whole(layout.size()), whole(size));
            match (is_large(layout), is_large(wanted)) {
                // SAFETY: as above.
                (false, false) => unsafe { System.realloc(block, layout, size) },
                (true, true) if before == after => block,
                // SAFETY: a map of this size is what the block is.
                (true, true) => unsafe { mremap(block.cast(), before, after, MremapFlags::MAYMOVE) }
                    .map_or(ptr::null_mut(), <*mut c_void>::cast),
                // SAFETY: two blocks of at least so many bytes; the old one is the caller's, and is let go only once copied.
                _ => unsafe {
                    let moved = self.alloc(wanted);
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

    /// A block of a size, with something at both of its ends.
    fn marked(size: usize) -> (*mut u8, Layout) {
        let layout = Layout::from_size_align(size, 8).unwrap();
        // SAFETY: no size is 0, and what is written is in the block.
        unsafe {
            let block = Large.alloc_zeroed(layout);
            assert!(!block.is_null() && block.align_offset(8) == 0);
            assert!((0..size).step_by(997).all(|at| *block.add(at) == 0));
            *block = 7;
            *block.add(size - 1) = 9;
            (block, layout)
        }
    }

    #[test]
    fn blocks_keep_what_is_in_them_from_size_to_size() {
        for from in SIZES {
            for to in SIZES {
                let (block, layout) = marked(from);
                // SAFETY: a block of ours of this layout, looked at within its size.
                unsafe {
                    let moved = Large.realloc(block, layout, to);
                    assert!(!moved.is_null());
                    assert_eq!(*moved, if from == 1 { 9 } else { 7 }, "{from} to {to}");
                    if to >= from {
                        assert_eq!(*moved.add(from - 1), 9, "{from} to {to}");
                    }
                    *moved.add(to - 1) = 1;
                    Large.dealloc(moved, Layout::from_size_align(to, 8).unwrap());
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_had_is_no_block() {
        let layout = Layout::from_size_align(isize::MAX as usize - 7, 8).unwrap();
        // SAFETY: the size is not 0.
        assert!(unsafe { Large.alloc(layout) }.is_null());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn large_blocks_go_back_to_the_system() {
        let held = || -> usize {
            let status = std::fs::read_to_string("/proc/self/statm").unwrap();
            status.split(' ').next().unwrap().parse().unwrap()
        };
        let before = held();
        let blocks: Vec<_> = (0..64).map(|_| marked(8 << 20)).collect();
        let pages = 64 * (8 << 20) / 4096;
        assert!(held() >= before + pages / 2);
        // SAFETY: blocks of ours.
        blocks.into_iter().for_each(|(block, layout)| unsafe { Large.dealloc(block, layout) });
        assert!(held() < before + pages / 2);
    }
}
