use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use zstd::bulk::{Compressor, Decompressor};

use super::*;
use crate::error::{Error, Result};
use crate::source::{Blob, Local, Source};
use crate::tensor::DType;

/// A row whose numbers follow from its step and tensor.
fn row(step: Step, tensor: u32) -> Row {
    let values = [step as f64, f64::from(tensor), -0.1 * step as f64, f64::NAN];
    let bytes = values.map(f64::to_le_bytes).concat();
    let previous = [0.0, 1.0, 2.0, 3.0].map(f64::to_le_bytes).concat();
    let mut statistics = crate::statistics::statistics(DType::F64, &bytes, Some(&previous)).unwrap();
    (statistics.saturated, statistics.subnormal) = (step as u64 % 5, u64::from(tensor) + 7);
    Row { step, mode: Mode::Train, mode_step: step / 2, tensor, flags: 0, statistics }
}

fn same(ours: &Row, stored: &Row) -> bool {
    let near = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 6.1e-8 * b.abs();
    let (s, t) = (&ours.statistics, &stored.statistics);
    (ours.step, ours.mode, ours.mode_step, ours.tensor, ours.flags)
        == (stored.step, stored.mode, stored.mode_step, stored.tensor, stored.flags)
        && (s.count, s.nan, s.neg_inf, s.pos_inf, s.zeros) == (t.count, t.nan, t.neg_inf, t.pos_inf, t.zeros)
        && (s.saturated, s.subnormal) == (t.saturated, t.subnormal)
        && (s.min.to_bits(), s.max.to_bits()) == (t.min.to_bits(), t.max.to_bits())
        && [(s.mean, t.mean), (s.std, t.std), (s.l1, t.l1), (s.l2, t.l2), (s.abs_max, t.abs_max), (s.update, t.update)]
            .into_iter()
            .all(|(a, b)| near(a, b))
}

fn name(number: u32) -> Name {
    let (dtype, shape) = ("float64".to_owned(), vec![4]);
    Name { id: number, name: format!("w{number}"), dtype, shape, collection: "weights".into(), order: None }
}

/// A writer that writes every `steps` steps.
fn writer(root: &Path, steps: usize, segment: u64) -> StatisticsWriter {
    let limits = Limits { steps, time: Duration::from_secs(1000), segment, ..Limits::default() };
    StatisticsWriter::new(root, "worker_0", limits, false).unwrap()
}

fn append(writer: &mut StatisticsWriter, step: Step, tensors: u32) {
    (0..tensors).for_each(|tensor| {
        writer.add(&format!("w{tensor}"), name);
    });
    writer.append(step, (0..tensors).map(|tensor| row(step, tensor))).unwrap();
}

fn keys(root: &Path) -> Vec<String> {
    let directory = root.join(DIRECTORY).join("worker_0");
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<String> =
        entries.map(|entry| format!("{DIRECTORY}/worker_0/{}", entry.unwrap().file_name().display())).collect();
    found.sort();
    found
}

fn refresh(reader: &mut Reader, root: &Path) -> bool {
    let keys = keys(root);
    reader.refresh(&Local::new(root), keys.iter().map(String::as_str)).unwrap()
}

fn all(reader: &Reader, root: &Path) -> Vec<(String, Row)> {
    let found = reader.read(&Local::new(root), &Selection::default()).unwrap();
    assert!(found.failed.is_empty(), "{:?}", found.failed);
    found.rows.into_iter().map(|(name, _, row)| (found.names[name as usize].clone(), row)).collect()
}

fn opened(root: &Path) -> Reader {
    let mut reader = Reader::new();
    refresh(&mut reader, root);
    reader
}

#[test]
fn rows_survive_encoding() {
    let rows: Vec<Row> = (0..1000).map(|at| Row { flags: flags::ABSENT, ..row(at % 50, at as u32 / 50) }).collect();
    let bytes = encode_batch(&rows, &mut Compressor::new(3).unwrap()).unwrap();
    let decoded = decode_batch(&bytes, &mut Decompressor::new().unwrap()).unwrap();
    assert_eq!(decoded.len(), rows.len());
    assert!(rows.iter().zip(&decoded).all(|(ours, stored)| same(ours, stored)));
    assert!(bytes.len() < 1000 * 40, "{} bytes", bytes.len());
    let none = encode_batch(&[], &mut Compressor::new(3).unwrap()).unwrap();
    assert!(decode_batch(&none, &mut Decompressor::new().unwrap()).unwrap().is_empty());
}

#[test]
fn schema_is_recognized() {
    let schema = schema();
    assert!(is_schema(&schema) && schema.len().is_multiple_of(8));
    for end in 0..schema.len() {
        assert!(!is_schema(&schema[..end]) || end > schema.len() - 8);
    }
    let bytes = encode_batch(&[row(1, 0)], &mut Compressor::new(3).unwrap()).unwrap();
    assert!(!is_schema(&bytes));
}

#[test]
fn reader_follows_a_growing_file() {
    let run = tempfile::tempdir().unwrap();
    let (mut writer, mut reader) = (writer(run.path(), 4, 1 << 30), opened(run.path()));
    for step in 0..10 {
        append(&mut writer, step, 3);
        let is_new = refresh(&mut reader, run.path());
        assert_eq!(is_new, step % 4 == 3);
        let rows = all(&reader, run.path());
        assert_eq!(rows.len() as i64, (step + 1) / 4 * 4 * 3);
    }
    // New tensors, and the rest.
    append(&mut writer, 10, 5);
    writer.close().unwrap();
    assert!(refresh(&mut reader, run.path()) && !refresh(&mut reader, run.path()));
    let rows = all(&reader, run.path());
    assert_eq!(rows.len(), 11 * 3 + 2);
    assert!(rows.iter().all(|(name, stored)| *name == format!("w{}", stored.tensor)));
    assert!(rows.iter().all(|(_, stored)| same(&row(stored.step, stored.tensor), stored)));
    assert!(rows.is_sorted_by_key(|(name, row)| (name.clone(), row.step)));
    assert!(reader.verify(&Local::new(run.path())).unwrap().is_empty());
    assert!(reader.dropped(&Local::new(run.path())).unwrap().is_empty());
    let names = reader.names(&Local::new(run.path()), &HashMap::new()).unwrap();
    assert_eq!(names.iter().map(|name| name.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_scan_names_steps_and_the_first_lost_values() {
    let run = tempfile::tempdir().unwrap();
    let mut writer = writer(run.path(), 4, 1 << 30);
    for tensor in 0..3 {
        let _ = writer.add(&format!("w{tensor}"), name);
    }
    for step in 0..20 {
        let rows = (0..3).map(|tensor| {
            let mut row = row(3 * step, tensor);
            row.statistics.nan = u64::from(tensor == 1 && step >= 6);
            row.statistics.neg_inf = u64::from(tensor == 2 && step == 13);
            (row.statistics.pos_inf, row.statistics.count) = (0, 10);
            row
        });
        writer.append(3 * step, rows).unwrap();
    }
    writer.close().unwrap();
    let (reader, source) = (opened(run.path()), Local::new(run.path()));
    let mut calls = Vec::new();
    let mut note = |done, total| {
        calls.push((done, total));
        Ok(())
    };
    let scanned = reader.scan(&source, -1, &mut note).unwrap();
    assert_eq!(scanned.steps, (0..20).map(|step| 3 * step).collect::<Vec<_>>());
    assert_eq!(scanned.broken, [18, 39]);
    assert_eq!(calls, (1..=5).map(|batch| (12 * batch, 60)).collect::<Vec<_>>());
    let later = reader.scan(&source, 50, &mut |_, _| Ok(())).unwrap();
    assert_eq!((later.steps, later.broken), (vec![51, 54, 57], vec![51]));
    assert!(matches!(reader.scan(&source, -1, &mut |_, _| Err(Error::Cancelled)), Err(Error::Cancelled)));
}

#[test]
fn rows_come_in_the_order_of_the_selected_names() {
    let run = tempfile::tempdir().unwrap();
    let mut writer = writer(run.path(), 4, 1 << 30);
    (0..20).for_each(|step| append(&mut writer, step, 3));
    writer.close().unwrap();
    let selection = Selection { names: Some(vec!["w2", "x", "w0", "w2"]), ..Selection::default() };
    let found = opened(run.path()).read(&Local::new(run.path()), &selection).unwrap();
    let rows: Vec<_> =
        found.rows.iter().map(|(name, _, row)| (found.names[*name as usize].as_str(), row.step)).collect();
    let expected: Vec<_> = ["w2", "w0"].iter().flat_map(|name| (0..20).map(move |step| (*name, step))).collect();
    assert_eq!(rows, expected);
}

#[test]
fn rows_can_be_selected() {
    let run = tempfile::tempdir().unwrap();
    let mut writer = writer(run.path(), 4, 1 << 30);
    (0..20).for_each(|step| append(&mut writer, step, 3));
    writer.close().unwrap();
    let reader = opened(run.path());
    let read = |selection: Selection<'_>| reader.read(&Local::new(run.path()), &selection).unwrap().rows.len();
    assert_eq!(read(Selection { names: Some(["w1", "x"].into()), ..Selection::default() }), 20);
    assert_eq!(read(Selection { steps: Some([3, 4, 17, 99].into()), ..Selection::default() }), 9);
    assert_eq!(read(Selection { mode: Some(Mode::Eval), ..Selection::default() }), 0);
    assert_eq!(read(Selection { workers: Some(["worker_1"].into()), ..Selection::default() }), 0);
}

#[test]
fn segments_end_by_size_and_opening_and_later_rows_count() {
    let run = tempfile::tempdir().unwrap();
    let mut first = writer(run.path(), 2, 4000);
    (0..20).for_each(|step| append(&mut first, step, 3));
    first.close().unwrap();
    let segments = keys(run.path()).len() / 3;
    assert!(segments > 1, "{segments}");
    // A restart from step 15, with its tensors in another order.
    let mut second = writer(run.path(), 2, 1 << 30);
    let changed = |step| Row { flags: flags::SKIPPED, ..row(step, 0) };
    second.add("w2", |number| Name { name: "w2".into(), ..name(number) });
    (15..18).for_each(|step| second.append(step, [changed(step)]).unwrap());
    second.close().unwrap();
    assert_eq!(keys(run.path()).len() / 3, segments + 1);
    let rows = all(&opened(run.path()), run.path());
    assert_eq!(rows.len(), 60);
    for (name, row) in rows {
        assert_eq!(row.flags == flags::SKIPPED, name == "w2" && (15..18).contains(&row.step));
    }
}

#[test]
fn torn_tail_is_dropped_and_reported() {
    let run = tempfile::tempdir().unwrap();
    let mut first = writer(run.path(), 2, 1 << 30);
    (0..6).for_each(|step| append(&mut first, step, 3));
    std::mem::forget(first);
    let path = |extension: &str| run.path().join(DIRECTORY).join("worker_0").join(format!("000000.{extension}"));
    let (stream, commits) = (std::fs::read(path("arrows")).unwrap(), std::fs::read(path("commit")).unwrap());
    assert_eq!(commits.len(), 3 * COMMIT_SIZE);
    let last = Commit::decode(commits[2 * COMMIT_SIZE..].try_into().unwrap()).unwrap();
    let source = Local::new(run.path());
    // Killed at any byte of the stream, before its commit record, or within the record.
    for cut in (last.offset as usize..stream.len()).step_by(97).chain([stream.len()]) {
        for end in [2 * COMMIT_SIZE, 2 * COMMIT_SIZE + 17] {
            std::fs::write(path("arrows"), &stream[..cut]).unwrap();
            std::fs::write(path("commit"), &commits[..end]).unwrap();
            let reader = opened(run.path());
            assert_eq!(all(&reader, run.path()).len(), 12);
            let dropped = reader.dropped(&source).unwrap();
            assert_eq!(dropped.iter().map(|one| one.bytes).sum::<u64>(), cut as u64 - last.offset);
        }
    }
    // A machine that crashed: the commit record is there, its batch is not.
    std::fs::write(path("arrows"), &stream[..stream.len() - 9]).unwrap();
    std::fs::write(path("commit"), &commits).unwrap();
    let reader = opened(run.path());
    let found = reader.read(&source, &Selection::default()).unwrap();
    assert!(matches!(found.failed[..], [Error::Truncated { .. }]) && found.rows.len() == 12);
    assert_eq!(reader.verify(&source).unwrap().len(), 1);
}

#[test]
fn damaged_batch_does_not_affect_others() {
    let run = tempfile::tempdir().unwrap();
    let mut first = writer(run.path(), 2, 1 << 30);
    (0..6).for_each(|step| append(&mut first, step, 3));
    first.close().unwrap();
    let path = run.path().join(DIRECTORY).join("worker_0/000000.arrows");
    let mut stream = std::fs::read(&path).unwrap();
    let (reader, source) = (opened(run.path()), Local::new(run.path()));
    let at = schema().len() + 300;
    stream[at] ^= 1;
    std::fs::write(&path, &stream).unwrap();
    let found = reader.read(&source, &Selection::default()).unwrap();
    assert_eq!((found.rows.len(), found.failed.len()), (12, 1));
    assert!(found.failed[0].to_string().contains("checksum mismatch"), "{:?}", found.failed);
}

#[test]
fn another_schema_is_a_problem_and_not_read() {
    let run = tempfile::tempdir().unwrap();
    let mut first = writer(run.path(), 1, 1 << 30);
    append(&mut first, 0, 1);
    first.close().unwrap();
    let path = run.path().join(DIRECTORY).join("worker_0/000000.arrows");
    let mut stream = std::fs::read(&path).unwrap();
    let column = stream.windows(9).position(|bytes| bytes == b"mode_step").unwrap();
    stream[column] = b'M';
    std::fs::write(&path, &stream).unwrap();
    let reader = opened(run.path());
    assert_eq!(reader.problems().len(), 1);
    assert!(all(&reader, run.path()).is_empty());
}

#[test]
fn failed_writes_are_repeated() {
    let run = tempfile::tempdir().unwrap();
    let mut first = writer(run.path(), 1, 1 << 30);
    // A file in the place of the directory.
    std::fs::create_dir_all(run.path().join(DIRECTORY)).unwrap();
    std::fs::write(run.path().join(DIRECTORY).join("worker_0"), b"").unwrap();
    first.add("w0", name);
    assert!(matches!(first.append(0, [row(0, 0)]), Err(Error::Io { .. })));
    assert_eq!(first.pending(), 1);
    std::fs::remove_file(run.path().join(DIRECTORY).join("worker_0")).unwrap();
    append(&mut first, 1, 1);
    assert_eq!((first.pending(), all(&opened(run.path()), run.path()).len()), (0, 2));
    let error = first.append(2, [row(2, 7)]).unwrap_err().to_string();
    assert!(error.contains("tensor 7"), "{error}");
}

proptest! {
    #[test]
    fn damaged_messages_are_errors_or_rows(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let rows: Vec<Row> = (0..40).map(|at| row(at % 10, at as u32 / 10)).collect();
        let mut bytes = encode_batch(&rows, &mut Compressor::new(3).unwrap()).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(rows) = decode_batch(&bytes, &mut Decompressor::new().unwrap()) {
            prop_assert!(rows.len() <= MAX_ROWS);
        }
        is_schema(&bytes);
    }
}

/// A store that counts its requests.
struct Store {
    files: Local,
    reads: Arc<AtomicUsize>,
}

struct Object(Box<dyn Blob>, Arc<AtomicUsize>);

impl Source for Store {
    fn root(&self) -> String {
        self.files.root()
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        Ok(Box::new(Object(self.files.open(key)?, self.reads.clone())))
    }

    fn reads_at_once(&self) -> Option<usize> {
        Some(4)
    }
}

impl Blob for Object {
    fn read_at(&self, offset: u64, length: u64, buffer: &mut Vec<u8>) -> Result<usize> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(offset, length, buffer)
    }
}

/// What is new in a store whose listing has sizes, and how many requests that took.
fn news(reader: &mut Reader, root: &Path) -> (bool, usize) {
    let reads = Arc::new(AtomicUsize::new(0));
    let store = Store { files: Local::new(root), reads: reads.clone() };
    let keys = keys(root);
    let sized = keys.iter().map(|key| (key.as_str(), std::fs::metadata(root.join(key)).map(|file| file.len()).ok()));
    let is_new = reader.refresh_listed(&store, sized).unwrap();
    (is_new, reads.load(Ordering::Relaxed))
}

/// Writes `segments` segments of two batches.
fn write_segments(root: &Path, segments: i64) {
    for segment in 0..segments {
        let mut writer = writer(root, 1, 1 << 30);
        (2 * segment..2 * segment + 2).for_each(|step| append(&mut writer, step, 3));
    }
}

#[test]
fn a_store_is_asked_twice_for_each_segment_and_not_again() {
    let run = tempfile::tempdir().unwrap();
    write_segments(run.path(), 5);
    let mut reader = Reader::new();
    assert_eq!(news(&mut reader, run.path()), (true, 10));
    assert_eq!(news(&mut reader, run.path()), (false, 0));
    let mut writer = writer(run.path(), 1, 1 << 30);
    append(&mut writer, 10, 3);
    assert_eq!(news(&mut reader, run.path()), (true, 2));
    append(&mut writer, 11, 3);
    assert_eq!(news(&mut reader, run.path()), (true, 1));
    assert_eq!(all(&reader, run.path()), all(&opened(run.path()), run.path()));
}

#[test]
fn an_index_takes_the_place_of_requests_for_segments() {
    let run = tempfile::tempdir().unwrap();
    write_segments(run.path(), 5);
    let path = run.path().join(segment_index::key("worker_0"));
    let content = opened(run.path()).segment_index("worker_0").unwrap();
    std::fs::write(&path, &content).unwrap();
    let mut reader = Reader::new();
    assert_eq!(news(&mut reader, run.path()), (true, 1));
    assert_eq!(news(&mut reader, run.path()), (false, 0));
    assert_eq!(all(&reader, run.path()), all(&opened(run.path()), run.path()));
    assert!(reader.verify(&Local::new(run.path())).unwrap().is_empty());
    // What follows the index is read from the segments.
    let mut writer = writer(run.path(), 1, 1 << 30);
    append(&mut writer, 10, 3);
    let mut reader = Reader::new();
    assert_eq!(news(&mut reader, run.path()), (true, 3));
    assert_eq!(reader.size().0, 11);
    // One that is damaged, or of other statistics, is not used and is reported.
    for at in [0, 9, 20, 30, 100, content.len() - 1] {
        let mut damaged = content.clone();
        damaged[at] ^= 1;
        for bytes in [&damaged, &content[..at]] {
            std::fs::write(&path, bytes).unwrap();
            let mut reader = Reader::new();
            assert_eq!(news(&mut reader, run.path()), (true, 13));
            assert_eq!(reader.size().0, 11);
            let errors = reader.verify(&Local::new(run.path())).unwrap();
            assert!(errors.len() == 1 && errors[0].to_string().contains("segments.index, byte "), "{errors:?}");
        }
    }
    std::fs::write(&path, &content).unwrap();
    for number in 0..5 {
        let commits = run.path().join(format!("{DIRECTORY}/worker_0/{number:06}.commit"));
        let records = std::fs::read(&commits).unwrap();
        std::fs::write(&commits, &records[..COMMIT_SIZE]).unwrap();
    }
    let mut reader = Reader::new();
    assert_eq!((news(&mut reader, run.path()), reader.size().0), ((true, 13), 6));
    assert_eq!(reader.verify(&Local::new(run.path())).unwrap().len(), 1);
}

proptest! {
    #[test]
    fn an_index_of_any_bytes_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(segment_index::decode(&bytes, "key").is_err());
        let mut claimed = segment_index::encode(std::iter::empty());
        claimed.truncate(claimed.len() - 4);
        claimed.extend(&bytes);
        claimed.extend(crate::crc::crc32c(&claimed).to_le_bytes());
        prop_assert_eq!(segment_index::decode(&claimed, "key").is_ok(), bytes.is_empty());
    }
}
