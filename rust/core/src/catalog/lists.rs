//! Interning of lists of numbers.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::sorted::reserve;

/// Lists in one allocation, numbered in the order of insertion.
pub struct Lists<T> {
    items: Vec<T>,
    ends: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Lists { items: Vec::new(), ends: Vec::new(), table: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }
}

impl<T: Copy + Eq + Hash> Lists<T> {
    /// The number of lists.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The list of a number.
    pub fn get(&self, id: u32) -> &[T] {
        list_of(&self.items, &self.ends, id)
    }

    /// Interns a list. The list that was interned last is tried first, since files repeat those of the file before. `None`
    /// once 2^32 items are reached.
    pub fn intern(&mut self, list: &[T]) -> Option<u32> {
        let last = self.len().checked_sub(1).and_then(|last| u32::try_from(last).ok());
        if let Some(last) = last.filter(|last| self.get(*last) == list) {
            return Some(last);
        }
        let hash = self.hasher.hash_one(list);
        if let Some(id) = self.table.find(hash, |id| self.get(*id) == list) {
            return Some(*id);
        }
        let end = u32::try_from(self.items.len() + list.len()).ok()?;
        let id = u32::try_from(self.len()).ok()?;
        reserve(&mut self.items, list.len());
        self.items.extend_from_slice(list);
        reserve(&mut self.ends, 1);
        self.ends.push(end);
        let Lists { items, ends, table, hasher } = self;
        table.insert_unique(hash, id, |id| hasher.hash_one(list_of(items, ends, *id)));
        Some(id)
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.items.capacity() * size_of::<T>() + self.ends.capacity() * 4 + self.table.allocation_size()
    }
}

fn list_of<'a, T>(items: &'a [T], ends: &[u32], id: u32) -> &'a [T] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] as usize };
    &items[start..ends[id] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_have_one_number() {
        let mut lists = Lists::default();
        let texts: [&[u32]; 4] = [&[1, 2], &[], &[2], &[1, 2, 2]];
        for _ in 0..2 {
            for (id, text) in texts.iter().enumerate() {
                assert_eq!(lists.intern(text), Some(id as u32));
                assert_eq!(lists.intern(text), Some(id as u32));
            }
        }
        assert_eq!(lists.len(), texts.len());
        for (id, text) in texts.iter().enumerate() {
            assert_eq!(lists.get(id as u32), *text);
        }
    }
}
