//! String interning.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Strings in one allocation, numbered in the order of insertion.
#[derive(Default)]
pub struct Interner {
    text: String,
    ends: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Interner {
    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The string of a number.
    pub fn get(&self, id: u32) -> &str {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        &self.text[start..self.ends[id] as usize]
    }

    /// The number of a known string.
    pub fn find(&self, string: &str) -> Option<u32> {
        self.table.find(self.hasher.hash_one(string), |id| self.get(*id) == string).copied()
    }

    /// Interns a string. `guess` is tried first, since names repeat their order from step to step. `None` once 4 GB of
    /// names are reached.
    pub fn intern(&mut self, string: &str, guess: u32) -> Option<u32> {
        if (guess as usize) < self.len() && self.get(guess) == string {
            return Some(guess);
        }
        if let Some(id) = self.find(string) {
            return Some(id);
        }
        let end = u32::try_from(self.text.len() + string.len()).ok()?;
        let id = u32::try_from(self.ends.len()).ok()?;
        self.text.push_str(string);
        self.ends.push(end);
        let Interner { text, ends, table, hasher } = self;
        let hash_of = |id: &u32| {
            let id = *id as usize;
            let start = if id == 0 { 0 } else { ends[id - 1] as usize };
            hasher.hash_one(&text[start..ends[id] as usize])
        };
        table.insert_unique(hasher.hash_one(string), id, hash_of);
        Some(id)
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * 4 + self.table.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interning_is_independent_of_the_guess() {
        let mut names = Interner::default();
        for round in 0..3 {
            for (i, name) in ["a", "", "bc", "é"].into_iter().enumerate() {
                assert_eq!(names.intern(name, round), Some(i as u32));
            }
        }
        assert_eq!((names.len(), names.get(1), names.get(3)), (4, "", "é"));
        assert_eq!((names.find("bc"), names.find("b")), (Some(2), None));
    }
}
