//! Fuzzes statistics files with valid checksums: damaged ones are errors, whole ones give back their rows, in bounded memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smdwidgets_core::crc::crc32c;
use smdwidgets_core::source::Memory;
use smdwidgets_core::statistics::statistics;
use smdwidgets_core::statistics_file::{
    Commit, Compressor, Decompressor, Name, Reader, Row, Selection, decode_batch, encode_batch, is_schema, schema,
};
use smdwidgets_core::step::Mode;
use smdwidgets_core::tensor::DType;

const STEM: &str = "statistics/worker_0/000000";

/// Steps, tensors and elements of a batch.
type Batch<'a> = (Vec<(u16, u8)>, &'a [u8]);

fuzz_target!(|given: (Vec<Batch<'_>>, Vec<(u16, u8)>, Vec<(u16, u8)>, &[u8])| {
    let (batches, stream_changes, commit_changes, bytes) = given;
    is_schema(bytes);
    let mut decompressor = Decompressor::new().expect("zstd works");
    let _ = decode_batch(bytes, &mut decompressor);

    let (mut stream, mut commits, mut rows) = (schema(), Vec::new(), 0);
    for (keys, content) in batches.iter().take(4) {
        let batch = batch(keys, content);
        let block = encode_batch(&batch, &mut Compressor::new(1).expect("zstd works")).expect("rows can be encoded");
        let decoded = decode_batch(&block, &mut decompressor).expect("a batch can be decoded");
        assert!(decoded.iter().zip(&batch).all(|(ours, row)| (ours.step, ours.tensor) == (row.step, row.tensor)));
        commits.push(Commit {
            offset: stream.len() as u64,
            length: block.len() as u32,
            crc: 0,
            first: 0,
            last: u32::MAX,
            rows: batch.len() as u32,
            names_length: u32::MAX,
            time: 0.0,
        });
        stream.extend(block);
        rows += batch.len();
    }
    let is_whole = stream_changes.is_empty() && commit_changes.is_empty();
    let size = stream.len();
    stream_changes.iter().for_each(|(at, byte)| stream[usize::from(*at) % size] = *byte);
    // Checksums are right, so that damage is found by what reads the content.
    let mut records: Vec<u8> = Vec::new();
    for mut commit in commits {
        commit.crc = crc32c(&stream[commit.offset as usize..][..commit.length as usize]);
        records.extend(commit.encode());
    }
    for (at, byte) in &commit_changes {
        if let Some(count) = (records.len() / 48).checked_sub(1) {
            let record = usize::from(*at) % (count + 1) * 48;
            records[record + usize::from(*at >> 8) % 44] = *byte;
            let crc = crc32c(&records[record..record + 44]);
            records[record + 44..record + 48].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let names: Vec<u8> = (0..256).flat_map(|id| name(id).line()).chain(bytes.iter().copied()).collect();
    let mut files = Memory::default();
    files.insert(format!("{STEM}.arrows"), stream);
    files.insert(format!("{STEM}.commit"), records);
    files.insert(format!("{STEM}.names.jsonl"), names);
    let mut reader = Reader::new();
    reader.refresh(&files, [format!("{STEM}.commit").as_str()]).expect("memory can be read");
    let found = reader.read(&files, &Selection::default()).expect("memory can be read");
    reader.dropped(&files).expect("memory can be read");
    let errors = reader.verify(&files).expect("memory can be read");
    if is_whole {
        assert!(found.failed.is_empty() && errors.is_empty() && found.rows.len() <= rows);
    }
});

fn name(id: u32) -> Name {
    Name { id, name: format!("t{id}"), dtype: String::new(), shape: Vec::new(), collection: String::new(), order: None }
}

fn batch(keys: &[(u16, u8)], content: &[u8]) -> Vec<Row> {
    let content = &content[..content.len() / 4 * 4];
    let statistics = statistics(DType::F32, content, Some(content)).expect("whole elements");
    let row = |(step, tensor): &(u16, u8)| Row {
        step: i64::from(*step),
        mode: Mode::Train,
        mode_step: i64::from(*step),
        tensor: u32::from(*tensor),
        flags: 0,
        statistics,
    };
    keys.iter().map(row).collect()
}
