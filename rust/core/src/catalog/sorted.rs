//! Sorted lists that mostly grow at their end.

/// Make room for `more` without doubling: these lists are most of what a catalog holds.
pub fn reserve<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        list.reserve_exact(more.max(list.len() / 8));
    }
}

/// Put sorted `new` into sorted `list`. Behind the end it costs what is new; a few stragglers cost a move each; many, one
/// merge (a stable sort finds the two runs).
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
