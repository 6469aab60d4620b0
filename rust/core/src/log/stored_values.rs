//! In-memory storage of encoded values, so that no file is needed to return them.
//!
//! Successive values of a tag are mostly similar: a histogram keeps its edges, only its counts change. A value is therefore
//! stored as the words that differ from an earlier value of its tag, if that is smaller.

/// Unit of comparison in bytes.
const WORD: usize = 8;
/// Bytes covered by one mask: one bit per word.
const BLOCK: usize = 64 * WORD;
/// Values are stored in chunks of this size; larger ones get their own.
const PIECE: usize = 1 << 20;
/// Size of the first chunk of a file. Each further one is a quarter of the total, up to [`PIECE`].
const LEAST: usize = 4 << 10;
/// Marks a value that is stored whole.
const NONE: u32 = u32::MAX;

/// The values of a file.
#[derive(Debug, Default)]
pub struct StoredValues {
    /// By ascending offset in the file.
    values: Vec<Value>,
    pieces: Vec<Vec<u8>>,
    size: usize,
    /// For each tag, the last value that is stored whole.
    bases: Vec<u32>,
    differences: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Value {
    /// Offset in the file.
    at: u64,
    size: usize,
    /// Index of the chunk, and offset in it.
    piece: u32,
    first: usize,
    /// The value of the same size from which the differences are stored; [`NONE`] if stored whole.
    base: u32,
}

impl StoredValues {
    /// Adds a value of a tag, whose offset is higher than all previous ones.
    pub fn put(&mut self, tag: u32, at: u64, value: &[u8]) {
        let (tag, number) = (tag as usize, self.values.len() as u32);
        if self.bases.len() <= tag {
            self.bases.resize(tag + 1, NONE);
        }
        let mut differences = std::mem::take(&mut self.differences);
        differences.clear();
        let base = self.bases[tag];
        let alike = self.full_value(base).is_some_and(|base| differ(base, value, &mut differences));
        let (base, bytes) = if alike { (base, differences.as_slice()) } else { (NONE, value) };
        if !alike {
            self.bases[tag] = number;
        }
        let free = self.pieces.last().map_or(0, |piece| piece.capacity() - piece.len());
        if free < bytes.len() || self.pieces.is_empty() {
            self.pieces.push(Vec::with_capacity(bytes.len().max((self.size / 4).clamp(LEAST, PIECE))));
        }
        let piece = self.pieces.len() - 1;
        let first = self.pieces[piece].len();
        self.pieces[piece].extend_from_slice(bytes);
        self.size += bytes.len();
        self.values.push(Value { at, size: value.len(), piece: piece as u32, first, base });
        if differences.capacity() <= PIECE {
            self.differences = differences;
        }
    }

    /// The value at an offset of the file. `buffer` is a buffer for values stored as differences.
    pub fn get<'a>(&'a self, at: u64, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let number = self.values.binary_search_by_key(&at, |value| value.at).ok()?;
        let value = self.values.get(number)?;
        if value.base == NONE {
            return self.full_value(number as u32);
        }
        buffer.clear();
        let differences = self.pieces.get(value.piece as usize)?.get(value.first..)?;
        join(self.full_value(value.base)?, differences, buffer)?;
        Some(buffer)
    }

    fn full_value(&self, number: u32) -> Option<&[u8]> {
        let value = self.values.get(number as usize)?;
        self.pieces.get(value.piece as usize)?.get(value.first..)?.get(..value.size)
    }

    /// Frees unused capacity.
    pub fn fit(&mut self) {
        self.values.shrink_to_fit();
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        let pieces: usize = self.pieces.iter().map(Vec::capacity).sum();
        pieces + self.values.capacity() * size_of::<Value>() + 4 * self.bases.capacity() + self.differences.capacity()
    }
}

/// Encodes the words that differ from `base`: per block a mask and the marked words, then the bytes after the last word.
/// Returns false if the sizes differ or little would be saved.
fn differ(base: &[u8], value: &[u8], into: &mut Vec<u8>) -> bool {
    if base.len() != value.len() {
        return false;
    }
    let most = base.len() / 8 * 7;
    for (base, value) in base.chunks(BLOCK).zip(value.chunks(BLOCK)) {
        let (mut mask, at) = (0u64, into.len());
        into.extend([0; WORD]);
        let ((base, _), (value, rest)) = (base.as_chunks::<WORD>(), value.as_chunks::<WORD>());
        for (number, (_, word)) in base.iter().zip(value).enumerate().filter(|(_, (base, word))| base != word) {
            mask |= 1 << number;
            into.extend_from_slice(word);
        }
        into[at..at + WORD].copy_from_slice(&mask.to_le_bytes());
        into.extend_from_slice(rest);
        if into.len() > most {
            return false;
        }
    }
    true
}

/// Decodes a value from its base and the output of [`differ`].
fn join(base: &[u8], mut differences: &[u8], into: &mut Vec<u8>) -> Option<()> {
    for base in base.chunks(BLOCK) {
        let mask = u64::from_le_bytes(*differences.split_off(..WORD)?.first_chunk()?);
        let (words, rest) = base.as_chunks::<WORD>();
        for (number, word) in words.iter().enumerate() {
            let word = if mask >> number & 1 == 1 { differences.split_off(..WORD)? } else { word };
            into.extend_from_slice(word);
        }
        into.extend_from_slice(differences.split_off(..rest.len())?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn repeated_edges_are_stored_once() {
        let mut stored = StoredValues::default();
        let histogram = |step: u64| {
            let edges = (0..100u64).flat_map(|edge| (edge as f64 / 7.0).to_le_bytes());
            let counts = (0..100u64).flat_map(move |bucket| ((bucket * step) as f64 + 0.5).to_le_bytes());
            b"tag".iter().copied().chain(edges).chain(counts).collect::<Vec<u8>>()
        };
        for step in 1..=100 {
            stored.put(0, step, &histogram(step));
        }
        let written = 100 * histogram(1).len();
        assert!(stored.memory() < written * 7 / 10, "{} of {written} bytes", stored.memory());
        let mut buffer = Vec::new();
        for step in 1..=100 {
            assert_eq!(stored.get(step, &mut buffer), Some(histogram(step).as_slice()));
        }
        assert_eq!(stored.get(101, &mut buffer), None);
    }

    proptest! {
        #[test]
        fn stored_values_round_trip(
            values in prop::collection::vec((0u32..3, 0usize..3, any::<u8>(), prop::collection::vec(any::<prop::sample::Index>(), 0..4)), 0..20),
        ) {
            let mut stored = StoredValues::default();
            let mut written = Vec::new();
            for (at, (tag, size, byte, changes)) in values.into_iter().enumerate() {
                // Similar values, with sizes near multiples of words and blocks.
                let mut value: Vec<u8> = (0..[13, 600, 2 * BLOCK][size]).map(|at| (at % 251) as u8).collect();
                changes.iter().for_each(|change| *change.get_mut(&mut value) = byte);
                stored.put(tag, 7 * at as u64, &value);
                written.push(value);
            }
            let mut buffer = Vec::new();
            for (at, value) in written.iter().enumerate() {
                prop_assert_eq!(stored.get(7 * at as u64, &mut buffer), Some(value.as_slice()));
            }
            prop_assert_eq!(stored.get(1, &mut buffer), None);
        }
    }
}
