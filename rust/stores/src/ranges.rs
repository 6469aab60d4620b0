//! Which requests read a set of ranges.
//!
//! A request takes about 20 ms and costs the same for every size, so reading a gap of up to 1 MiB is cheaper than two
//! requests; long ranges are read in pieces at once.

use std::ops::Range;

/// The longest gap that is read and dropped.
const GAP: u64 = 1 << 20;
/// The longest piece that one request reads.
pub const PIECE: u64 = 8 << 20;

/// A range of an object, and the number of the object.
pub type Span = (usize, Range<u64>);

/// One request.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of the object.
    pub object: usize,
    /// Its bytes.
    pub range: Range<u64>,
    /// The numbers of the ranges that have bytes in it.
    pub parts: Vec<usize>,
}

/// The requests that read all ranges, those of earlier ranges first.
pub fn pieces(spans: &[Span]) -> Vec<Piece> {
    let mut order: Vec<usize> = (0..spans.len()).filter(|&i| !spans[i].1.is_empty()).collect();
    order.sort_by_key(|&i| (spans[i].0, spans[i].1.start, spans[i].1.end));
    let mut pieces: Vec<Piece> = Vec::new();
    for i in order {
        let (object, range) = &spans[i];
        let mut start = range.start;
        // The pieces of an object are sorted and do not overlap; the range may have bytes in several of the last ones.
        for piece in
            pieces.iter_mut().rev().take_while(|piece| piece.object == *object && piece.range.end > range.start)
        {
            if piece.range.start < range.end {
                piece.parts.push(i);
            }
            start = start.max(piece.range.end.min(range.end));
        }
        if start >= range.end {
            continue;
        }
        if let Some(last) = pieces.last_mut().filter(|last| last.object == *object)
            && start.saturating_sub(last.range.end) <= GAP
            && start < last.range.start + PIECE
        {
            last.range.end = range.end.min(last.range.start + PIECE);
            if last.parts.last() != Some(&i) {
                last.parts.push(i);
            }
            start = last.range.end;
        }
        while start < range.end {
            let end = range.end.min(start + PIECE);
            pieces.push(Piece { object: *object, range: start..end, parts: vec![i] });
            start = end;
        }
    }
    pieces.sort_by_key(|piece| piece.parts.iter().min().copied());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(spans: &[Span]) -> Vec<(usize, Range<u64>, Vec<usize>)> {
        pieces(spans).into_iter().map(|piece| (piece.object, piece.range, piece.parts)).collect()
    }

    #[test]
    fn small_gaps_are_read_and_large_ones_are_not() {
        let spans = [(0, 500..600), (0, 0..100), (0, GAP + 601..GAP + 700), (1, 0..10), (0, 5..5)];
        let first = (0, 0..600, vec![1, 0]);
        assert_eq!(ranges(&spans), [first, (0, GAP + 601..GAP + 700, vec![2]), (1, 0..10, vec![3])]);
    }

    #[test]
    fn every_byte_is_read_once_in_bounded_pieces() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let spans: Vec<Span> = (0..random(20))
                .map(|_| {
                    let start = random(40 << 20);
                    let longest = [1 << 10, 3 << 20, 30 << 20][random(3) as usize];
                    (random(2) as usize, start..start + random(longest))
                })
                .collect();
            let pieces = pieces(&spans);
            for piece in &pieces {
                assert!(piece.range.end - piece.range.start <= PIECE);
                let apart = |other: &&Piece| {
                    std::ptr::eq(*other, piece)
                        || other.object != piece.object
                        || other.range.end <= piece.range.start
                        || piece.range.end <= other.range.start
                };
                assert!(pieces.iter().all(|other| apart(&other)), "{spans:?}");
            }
            for (i, (object, range)) in spans.iter().enumerate() {
                let mine = pieces.iter().filter(|piece| piece.parts.contains(&i));
                let read: u64 = mine
                    .map(|piece| {
                        assert_eq!(piece.object, *object);
                        assert!(piece.range.start < range.end && range.start < piece.range.end);
                        piece.range.end.min(range.end).saturating_sub(piece.range.start.max(range.start))
                    })
                    .sum();
                assert_eq!(read, range.end - range.start, "{spans:?}");
            }
        }
    }
}
