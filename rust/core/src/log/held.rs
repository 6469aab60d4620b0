//! Values kept in memory as they were written, byte for byte: no file is needed any more to give them.
//!
//! The values of a tag are mostly alike: a histogram's edges are those of the step before, and only its counts differ. So a
//! value is held as the words in which it differs from an earlier one of its tag, where that is less.

/// Bytes that are compared as one.
const WORD: usize = 8;
/// Bytes whose differences stand together: as many words as a mask has bits.
const BLOCK: usize = 64 * WORD;
/// Values lie side by side in pieces of this size, or in one of their own.
const PIECE: usize = 1 << 20;
/// The first piece of a file. Each further one is a quarter of all before it, up to [`PIECE`].
const LEAST: usize = 4 << 10;
/// The base of a value that has none.
const NONE: u32 = u32::MAX;

/// The values of a file.
#[derive(Debug, Default)]
pub struct Held {
    /// By where they lie in the file, ascending.
    values: Vec<Value>,
    pieces: Vec<Vec<u8>>,
    size: usize,
    /// Of each tag, the last value that is held whole.
    wholes: Vec<u32>,
    differences: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Value {
    /// Where it lies in the file.
    at: u64,
    size: usize,
    /// Where it lies here: in which piece, and from which byte on.
    piece: u32,
    first: usize,
    /// The value of the same size that it is told by the differences from; [`NONE`] where it is held whole.
    base: u32,
}

impl Held {
    /// Takes in the value of a tag, which lies behind all others of the file.
    pub fn put(&mut self, tag: u32, at: u64, value: &[u8]) {
        let (tag, number) = (tag as usize, self.values.len() as u32);
        if self.wholes.len() <= tag {
            self.wholes.resize(tag + 1, NONE);
        }
        let mut differences = std::mem::take(&mut self.differences);
        differences.clear();
        let base = self.wholes[tag];
        let alike = self.whole(base).is_some_and(|base| differ(base, value, &mut differences));
        let (base, bytes) = if alike { (base, differences.as_slice()) } else { (NONE, value) };
        if !alike {
            self.wholes[tag] = number;
        }
        let room = self.pieces.last().map_or(0, |piece| piece.capacity() - piece.len());
        if room < bytes.len() || self.pieces.is_empty() {
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

    /// The value that lies at this place of the file, if there is one; put together in `room` where it is held in parts.
    pub fn get<'a>(&'a self, at: u64, room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let number = self.values.binary_search_by_key(&at, |value| value.at).ok()?;
        let value = self.values.get(number)?;
        if value.base == NONE {
            return self.whole(number as u32);
        }
        room.clear();
        let differences = self.pieces.get(value.piece as usize)?.get(value.first..)?;
        join(self.whole(value.base)?, differences, room)?;
        Some(room)
    }

    fn whole(&self, number: u32) -> Option<&[u8]> {
        let value = self.values.get(number as usize)?;
        self.pieces.get(value.piece as usize)?.get(value.first..)?.get(..value.size)
    }

    /// Gives back memory that was only room to grow.
    pub fn fit(&mut self) {
        self.values.shrink_to_fit();
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        let pieces: usize = self.pieces.iter().map(Vec::capacity).sum();
        pieces + self.values.capacity() * size_of::<Value>() + 4 * self.wholes.capacity() + self.differences.capacity()
    }
}

/// In which words a value differs from another of its size: of each block a mask, and the words that it marks; then what is
/// left behind the last word. False where that would take nearly as much as the value.
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

/// Puts a value together of another and what [`differ`] found.
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
    fn equal_edges_are_held_once() {
        let mut held = Held::default();
        let histogram = |step: u64| {
            let edges = (0..100u64).flat_map(|edge| (edge as f64 / 7.0).to_le_bytes());
            let counts = (0..100u64).flat_map(move |bucket| ((bucket * step) as f64 + 0.5).to_le_bytes());
            b"tag".iter().copied().chain(edges).chain(counts).collect::<Vec<u8>>()
        };
        for step in 1..=100 {
            held.put(0, step, &histogram(step));
        }
        let written = 100 * histogram(1).len();
        assert!(held.memory() < written * 7 / 10, "{} of {written} bytes", held.memory());
        let mut room = Vec::new();
        for step in 1..=100 {
            assert_eq!(held.get(step, &mut room), Some(histogram(step).as_slice()));
        }
        assert_eq!(held.get(101, &mut room), None);
    }

    proptest! {
        #[test]
        fn what_is_held_is_what_was_written(
            values in prop::collection::vec((0u32..3, 0usize..3, any::<u8>(), prop::collection::vec(any::<prop::sample::Index>(), 0..4)), 0..20),
        ) {
            let mut held = Held::default();
            let mut written = Vec::new();
            for (at, (tag, size, byte, changes)) in values.into_iter().enumerate() {
                // Values that are alike, of sizes around those of words and blocks.
                let mut value: Vec<u8> = (0..[13, 600, 2 * BLOCK][size]).map(|at| (at % 251) as u8).collect();
                changes.iter().for_each(|change| *change.get_mut(&mut value) = byte);
                held.put(tag, 7 * at as u64, &value);
                written.push(value);
            }
            let mut room = Vec::new();
            for (at, value) in written.iter().enumerate() {
                prop_assert_eq!(held.get(7 * at as u64, &mut room), Some(value.as_slice()));
            }
            prop_assert_eq!(held.get(1, &mut room), None);
        }
    }
}
