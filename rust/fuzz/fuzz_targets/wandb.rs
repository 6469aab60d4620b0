//! Fuzzes W&B's files that grow in two parts, with sound framing and without: the result equals that of one read, and memory
//! is bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smdwidgets_core::crc::crc32;
use smdwidgets_core::wandb::{BLOCK, Batch, Reader, value_parts};

const NAMES: usize = 50;

fn read(reader: &mut Reader, file: &[u8]) -> Batch {
    loop {
        let start = reader.at() as usize / BLOCK * BLOCK;
        let piece = &file[start.min(file.len())..(start + 2 * BLOCK).min(file.len())];
        reader.feed(piece, start as u64).expect("the next piece");
        if piece.len() < 2 * BLOCK {
            return reader.take();
        }
    }
}

/// The numbers of a batch as bits, with rows counted from those before it.
fn cells(batch: &Batch, before: usize) -> Vec<(String, Vec<(i64, u64)>)> {
    let column = |column: &smdwidgets_core::wandb::Column| {
        column.rows.iter().zip(&column.values).map(|(row, value)| (row + before as i64, value.to_bits())).collect()
    };
    batch.history.columns.iter().map(|(name, one)| (name.clone(), column(one))).collect()
}

fuzz_target!(|given: (u32, Vec<(u8, u8, &[u8])>)| {
    let (cut, pieces) = given;
    let mut file = Vec::new();
    for (kind, times, data) in pieces {
        for _ in 0..=times % 8 {
            match kind % 8 {
                // Sound fragments; a kind of 0 or 5 is invalid.
                kind @ 0..=5 => {
                    let left = BLOCK - file.len() % BLOCK;
                    if left < 7 {
                        file.resize(file.len() + left, 0);
                    }
                    let left = BLOCK - file.len() % BLOCK;
                    let data = &data[..data.len().min(left - 7)];
                    file.extend(crc32(kind, data).to_le_bytes());
                    file.extend((data.len() as u16).to_le_bytes());
                    file.push(kind);
                    file.extend(data);
                }
                6 => file.extend(data),
                // To the end of the block.
                _ => file.resize(file.len().next_multiple_of(BLOCK), data.first().copied().unwrap_or(0)),
            }
        }
    }
    let (mut grown, mut whole) = (Reader::new(0, NAMES), Reader::new(0, NAMES));
    let first = read(&mut grown, &file[..file.len().min(cut as usize)]);
    let second = read(&mut grown, &file);
    let all = read(&mut whole, &file);
    assert_eq!(grown.at(), whole.at());
    assert_eq!(grown.damage(), whole.damage());
    assert!(grown.media().eq(whole.media()));
    assert_eq!([&first.history.steps[..], &second.history.steps].concat(), all.history.steps);
    assert_eq!(first.settings.len() + second.settings.len(), all.settings.len());
    assert!(all.history.columns.len() <= NAMES);
    // A row takes at least nine bytes of the file, and a number four.
    let numbers: usize = all.history.columns.iter().map(|(_, column)| column.values.len()).sum();
    assert!(all.history.steps.len() <= file.len() / 9 + 1 && numbers <= file.len() / 4 + 1);
    // Every histogram has its record, and can be read.
    for (name, places) in &all.histograms {
        for (at, length) in &places.records {
            let begin = *at as usize / BLOCK * BLOCK;
            let piece = &file[begin..(at + length) as usize];
            assert!(!value_parts(piece, *at as usize - begin, name).expect("it was read before").is_empty());
        }
    }
    let mut joined = cells(&first, 0);
    for (name, more) in cells(&second, first.history.steps.len()) {
        match joined.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cells)) => cells.extend(more),
            None => joined.push((name, more)),
        }
    }
    let mut expected = cells(&all, 0);
    joined.sort();
    expected.sort();
    assert_eq!(joined, expected);
});
