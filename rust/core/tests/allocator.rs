//! Memory of the process, which other tests in the same process would change.

#![cfg(target_os = "linux")]

use std::alloc::{GlobalAlloc, Layout};

use smdwidgets_core::allocator::HugePageAllocator;

fn resident_pages() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn large_blocks_are_unmapped() {
    let layout = Layout::from_size_align(8 << 20, 8).unwrap();
    let before = resident_pages();
    let blocks: Vec<_> = (0..64)
        .map(|_| {
            // SAFETY: the size is not 0, and all writes are within the block.
            unsafe {
                let block = HugePageAllocator.alloc_zeroed(layout);
                (0..layout.size()).step_by(4096).for_each(|offset| *block.add(offset) = 7);
                block
            }
        })
        .collect();
    let pages = 64 * layout.size() / 4096;
    assert!(resident_pages() >= before + pages / 2);
    // SAFETY: the blocks have this layout.
    blocks.into_iter().for_each(|block| unsafe { HugePageAllocator.dealloc(block, layout) });
    assert!(resident_pages() < before + pages / 2);
}
