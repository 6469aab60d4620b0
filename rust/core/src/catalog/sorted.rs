//! Sorted vectors that mostly grow at the end.

/// Reserves without doubling, since these vectors are most of a catalog's memory.
pub fn reserve<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        list.reserve_exact(more.max(list.len() / 8));
    }
}

/// Merges sorted `new` into sorted `list`: appends at the end, inserts a few items, or sorts once for many (a stable sort
/// detects the two runs).
pub fn merge<T: Copy, K: Ord>(list: &mut Vec<T>, new: &[T], key: impl Fn(T) -> K) {
    let (Some(first), Some(last)) = (new.first(), list.last()) else {
        reserve(list, new.len());
        list.extend_from_slice(new);
        return;
    };
    let behind = key(*last) <= key(*first);
    reserve(list, new.len());
    if behind || new.len() > 4 {
        list.extend_from_slice(new);
        if !behind {
            list.sort_by_key(|item| key(*item));
        }
    } else {
        for item in new {
            let at = list.partition_point(|other| key(*other) <= key(*item));
            list.insert(at, *item);
        }
    }
}
