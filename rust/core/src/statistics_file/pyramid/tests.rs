use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::error::{Error, Result};
use crate::source::{Blob, Local, Memory, Reach, Source};
use crate::statistics::Statistics;
use crate::statistics_file::{DIRECTORY, Limits, Name, Reader, Row, Selection, StatisticsWriter};
use crate::step::Mode;
use crate::sweep::{Item, Plan};

const WORKER: &str = "worker_0";

/// A row of a healthy tensor, whose size changes a little from step to step.
fn row(step: i64, tensor: u32) -> Row {
    let std = 1.0 + 0.01 * ((step * 7 + i64::from(tensor) * 13) % 11) as f64;
    let mut statistics = Statistics {
        count: 100,
        nan: 0,
        neg_inf: 0,
        pos_inf: 0,
        zeros: 5,
        saturated: 0,
        subnormal: 0,
        min: -3.0,
        max: 3.0,
        mean: 0.25,
        std,
        l1: 80.0,
        l2: 0.0,
        abs_max: 3.0,
        update: 0.5,
    };
    statistics.l2 = statistics.derived_l2();
    let mode = if step % 10 == 9 { Mode::Eval } else { Mode::Train };
    Row { step, mode, mode_step: step, tensor, flags: 0, statistics }
}

fn nan(mut row: Row) -> Row {
    row.statistics.nan = 1;
    row
}

fn spike(mut row: Row) -> Row {
    row.statistics.std *= 1e4;
    row.statistics.l2 = row.statistics.derived_l2();
    row
}

fn written(root: &Path, steps: std::ops::Range<i64>, tensors: u32, change: impl Fn(Row) -> Row) {
    let limits = Limits { steps: 7, time: Duration::from_secs(1000), ..Limits::default() };
    let mut writer = StatisticsWriter::new(root, WORKER, limits, false).unwrap();
    for tensor in 0..tensors {
        let about = |id| Name {
            id,
            name: format!("w{tensor}"),
            dtype: String::new(),
            shape: Vec::new(),
            collection: String::new(),
            order: None,
        };
        writer.add(&format!("w{tensor}"), about);
    }
    for step in steps {
        writer.append(step, (0..tensors).map(|tensor| change(row(step, tensor)))).unwrap();
    }
    writer.close().unwrap();
}

fn reader(root: &Path) -> Reader {
    let entries = fs::read_dir(root.join(DIRECTORY).join(WORKER)).unwrap();
    let keys: Vec<String> =
        entries.map(|entry| format!("{DIRECTORY}/{WORKER}/{}", entry.unwrap().file_name().display())).collect();
    let mut reader = Reader::new();
    reader.refresh(&Local::new(root), keys.iter().map(String::as_str)).unwrap();
    reader
}

fn built(root: &Path) -> Result<Pyramid> {
    extended(root, Extent::WHOLE)
}

fn extended(root: &Path, extent: Extent) -> Result<Pyramid> {
    let (source, path) = (Local::new(root), root.join(key(WORKER)));
    build(&reader(root), &source, WORKER, &path, &HashSet::from(["w0"]), extent, &mut |_, _| Ok(()))?;
    Pyramid::open(Arc::new(source), WORKER)
}

/// Bins of all tensors, each in its row.
fn whole(pyramid: &Pyramid, measure: usize, level: u8) -> (usize, Bins) {
    let pairs: Vec<(u32, u32)> = (0u32..).zip(&pyramid.series).map(|(at, one)| (at, one.tensor)).collect();
    let (first, last) = pyramid.ends();
    let count = ((last >> level) - (first >> level) + 1) as usize;
    let shape = (pyramid.names.len(), count);
    let first = first as u64 >> level;
    (count, pyramid.bins(&Wanted { series: &pairs, measure, level, first, shape }).unwrap())
}

#[test]
fn bins_have_the_extremes_of_their_records() {
    let root = tempfile::tempdir().unwrap();
    // More series than a group has, and more bins than a block.
    written(root.path(), 3..900, 300, |row| row);
    let pyramid = built(root.path()).unwrap();
    assert_eq!((pyramid.levels(), pyramid.ends(), pyramid.names.len()), ((0, 5), (3, 899), 300));
    assert_eq!(pyramid.rows(), (897 * 300, 0));
    assert_eq!(pyramid.series.len(), 600);
    let rows = reader(root.path()).read(&Local::new(root.path()), &Selection::default()).unwrap().rows;
    for level in [0, 2, 5, 7] {
        let (count, bins) = whole(&pyramid, 0, level);
        let size = 300 * count;
        let (mut low, mut high, mut sum, mut n) =
            (vec![f64::INFINITY; size], vec![f64::NEG_INFINITY; size], vec![0.0; size], vec![0; size]);
        for (name, _, row) in &rows {
            let at = *name as usize * count + ((row.step >> level) - (3 >> level)) as usize;
            let size = row.statistics.mean.hypot(row.statistics.std).log10();
            low[at] = size.min(low[at]);
            high[at] = size.max(high[at]);
            sum[at] += size;
            n[at] += 1;
        }
        assert_eq!(bins.n, n, "level {level}");
        for at in 0..size {
            let expected = [low[at], sum[at] / n[at] as f64, high[at]];
            for (plane, expected) in bins.values.iter().zip(expected) {
                assert!((f64::from(plane[at]) - expected).abs() < 3e-3, "level {level}, bin {at}");
            }
        }
    }
}

#[test]
fn no_event_of_a_single_step_is_lost() {
    let root = tempfile::tempdir().unwrap();
    let (bad, large) = ((417, 299), (640, 7));
    written(root.path(), 0..1000, 300, |row| match (row.step, row.tensor) {
        place if place == bad => nan(row),
        place if place == large => spike(row),
        _ => row,
    });
    let pyramid = built(root.path()).unwrap();
    let (count, bins) = whole(&pyramid, 5, 5);
    let flagged: Vec<(usize, u8)> =
        bins.flag.iter().enumerate().filter(|(_, flag)| **flag != 0).map(|(at, flag)| (at, *flag)).collect();
    assert_eq!(flagged, [(7 * count + 640 / 32, 128), (299 * count + 417 / 32, 1)]);
    assert!(bins.values[2][7 * count + 640 / 32] > 60.0);
    let steps = |tensor: u32, flag: u8| -> Vec<i64> {
        let of = |one: &&Record| one.tensor == tensor && one.flag & flag != 0;
        pyramid.records.iter().filter(of).map(|one| one.step).collect()
    };
    assert_eq!((steps(299, 1), steps(7, 128)), (vec![417], vec![640]));
    // Neighbours, which show whether such a record is single.
    assert!([416, 418].iter().all(|step| pyramid.records.iter().any(|one| one.tensor == 299 && one.step == *step)));
}

#[test]
fn of_values_that_stay_bad_the_first_and_last_are_kept() {
    let root = tempfile::tempdir().unwrap();
    written(root.path(), 0..300, 2, |row| if row.tensor == 1 && row.step >= 100 { nan(row) } else { row });
    let records = built(root.path()).unwrap().records;
    let steps: Vec<i64> = records.iter().filter(|one| one.tensor == 1 && one.is_bad()).map(|one| one.step).collect();
    // And the one with the largest surprise of all.
    assert_eq!((steps.first(), steps.last(), steps.len()), (Some(&100), Some(&299), 3));
}

#[test]
fn steps_that_were_written_again_count_once() {
    let root = tempfile::tempdir().unwrap();
    written(root.path(), 0..80, 3, spike);
    written(root.path(), 50..200, 3, |row| row);
    let (_, bins) = whole(&built(root.path()).unwrap(), 0, 0);
    assert!(bins.n.iter().all(|n| *n == 1));
    assert!(bins.values[0][49] > 3.0 && bins.values[2][50] < 1.0);
    written(root.path(), 100..120, 3, |row| row);
    assert!(matches!(built(root.path()), Err(Error::Invalid(_))));
}

#[test]
fn a_pyramid_belongs_to_statistics_that_only_grew() {
    let root = tempfile::tempdir().unwrap();
    written(root.path(), 0..50, 3, |row| row);
    let pyramid = built(root.path()).unwrap();
    assert!(pyramid.belongs_to(&reader(root.path()), WORKER));
    assert!(pyramid.is_current(&reader(root.path()), WORKER));
    written(root.path(), 50..60, 3, |row| row);
    assert!(pyramid.belongs_to(&reader(root.path()), WORKER));
    assert!(!pyramid.is_current(&reader(root.path()), WORKER));
    written(root.path(), 55..90, 3, |row| row);
    assert!(pyramid.belongs_to(&reader(root.path()), WORKER));
    written(root.path(), 40..100, 3, |row| row);
    assert!(!pyramid.belongs_to(&reader(root.path()), WORKER));
    let other = tempfile::tempdir().unwrap();
    written(other.path(), 0..50, 3, spike);
    assert!(!pyramid.belongs_to(&reader(other.path()), WORKER));
}

#[test]
fn an_attempt_that_fails_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    written(root.path(), 0..50, 3, |row| row);
    let (source, path) = (Local::new(root.path()), root.path().join(key(WORKER)));
    let mut cancel = |done: u64, total: u64| if done < total / 2 { Ok(()) } else { Err(Error::Cancelled) };
    let outcome = build(&reader(root.path()), &source, WORKER, &path, &HashSet::new(), Extent::WHOLE, &mut cancel);
    assert!(matches!(outcome, Err(Error::Cancelled)));
    let left = fs::read_dir(path.parent().unwrap()).unwrap();
    assert!(left.map(|entry| entry.unwrap().file_name()).all(|name| !name.to_string_lossy().contains("pyramid")));
}

#[test]
fn damage_is_an_error_and_never_another_picture() {
    let root = tempfile::tempdir().unwrap();
    written(root.path(), 0..40, 2, |row| if row.step == 20 { nan(row) } else { row });
    let (_, expected) = whole(&built(root.path()).unwrap(), 0, 0);
    let bytes = fs::read(root.path().join(key(WORKER))).unwrap();
    let read = |bytes: &[u8]| -> Result<Bins> {
        let mut source = Memory::default();
        source.insert(key(WORKER), bytes.to_vec());
        let pyramid = Pyramid::open(Arc::new(source), WORKER)?;
        let pairs: Vec<(u32, u32)> = (0u32..).zip(&pyramid.series).map(|(at, one)| (at, one.tensor)).collect();
        pyramid.bins(&Wanted { series: &pairs, measure: 0, level: 0, first: 0, shape: (2, 40) })
    };
    assert_eq!(format!("{:?}", read(&bytes).unwrap()), format!("{expected:?}"));
    let text = format!("{expected:?}");
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x20;
        assert!(
            read(&changed).is_err_and(|error| !matches!(error, Error::Invalid(_))) || {
                // Tiles of other measures and levels are not read.
                format!("{:?}", read(&changed).unwrap()) == text
            }
        );
        assert!(read(&bytes[..at]).is_err());
    }
}

/// Many rows at once, as a hook writes them.
const GROWING: Extent = Extent { growing: true, rows: u64::MAX };

/// Statistics that grow by uneven steps, with tensors that come later, seldom ones, and events at the borders.
fn grown(root: &Path, steps: std::ops::Range<i64>) {
    let ends = [steps.start, steps.start + 1, steps.end - 1];
    written(root, steps, 270, |row| match row.tensor {
        3 if ends.contains(&row.step) => nan(row),
        5 if ends.contains(&row.step) => spike(row),
        7 if row.step > 200 => nan(row),
        _ => row,
    });
}

fn assert_same(one: &Pyramid, other: &Pyramid) {
    assert_eq!((one.levels(), one.ends(), one.rows()), (other.levels(), other.ends(), other.rows()));
    assert_eq!((&one.names, &one.series), (&other.names, &other.series));
    let text = |pyramid: &Pyramid| format!("{:?} {:?} {:?}", pyramid.records, pyramid.seen, pyramid.sizes);
    assert!(text(one) == text(other));
    for (measure, level) in [0, 5].into_iter().flat_map(|measure| (4..10).map(move |level| (measure, level))) {
        let ((_, a), (_, b)) = (whole(one, measure, level), whole(other, measure, level));
        assert_eq!((&a.n, &a.flag), (&b.n, &b.flag), "level {level}");
        for plane in [0, 2] {
            assert_eq!(format!("{:?}", a.values[plane]), format!("{:?}", b.values[plane]), "level {level}");
        }
        for (a, b) in a.values[1].iter().zip(&b.values[1]) {
            assert!(a.is_nan() && b.is_nan() || (a - b).abs() <= 0.01, "level {level}: {a}, {b}");
        }
    }
}

#[test]
fn a_pyramid_that_grows_is_the_one_that_is_built_at_once() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut begin = 3;
    // Past borders of blocks at several levels, within bins, and so that the highest level rises.
    for end in [20, 30, 259, 260, 275, 511, 514, 1030, 1040, 2500] {
        grown(root.path(), begin..end);
        grown(other.path(), begin..end);
        begin = end;
        let pyramid = extended(root.path(), GROWING).unwrap();
        assert_eq!(pyramid.ends(), (3, end - 2));
        assert!(pyramid.belongs_to(&reader(root.path()), WORKER));
        let _ = fs::remove_file(other.path().join(key(WORKER)));
        assert_same(&pyramid, &extended(other.path(), GROWING).unwrap());
    }
    let size = fs::metadata(root.path().join(key(WORKER))).unwrap().len();
    let once = fs::metadata(other.path().join(key(WORKER))).unwrap().len();
    assert!(size < 3 * once, "{size}, {once}");
}

#[test]
fn a_pyramid_of_many_rows_is_built_in_parts() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for begin in [3, 600] {
        grown(root.path(), begin..begin + 597);
        grown(other.path(), begin..begin + 597);
    }
    let expected = extended(other.path(), GROWING).unwrap();
    let mut last = 0;
    while last < expected.ends().1 {
        let pyramid = extended(root.path(), Extent { rows: 20_000, ..GROWING }).unwrap();
        assert!(pyramid.ends().1 > last && pyramid.ends().1 <= last + 100);
        last = pyramid.ends().1;
    }
    assert_same(&Pyramid::open(Arc::new(Local::new(root.path())), WORKER).unwrap(), &expected);
}

#[test]
fn what_a_killed_process_left_does_no_harm() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = root.path().join(key(WORKER));
    grown(root.path(), 0..400);
    // A first build leaves a file with another name.
    fs::write(path.with_file_name("survey.pyramid.tmp"), [7; 100_000]).unwrap();
    extended(root.path(), GROWING).unwrap();
    let before = fs::read(&path).unwrap();
    grown(root.path(), 400..900);
    extended(root.path(), GROWING).unwrap();
    let after = fs::read(&path).unwrap();
    grown(other.path(), 0..400);
    grown(other.path(), 400..900);
    let expected = extended(other.path(), GROWING).unwrap();
    let first = Pyramid::open_file(Arc::new(Local::new(path.parent().unwrap())), "survey.pyramid").unwrap();
    assert_same(&first, &expected);
    // One that was continued leaves all up to some byte, but for the header.
    for end in [before.len() + 1, (before.len() + after.len()) / 2, after.len()] {
        let mut torn = after[..end].to_vec();
        torn[..48].copy_from_slice(&before[..48]);
        fs::write(&path, torn).unwrap();
        let old = Pyramid::open(Arc::new(Local::new(root.path())), WORKER).unwrap();
        assert_eq!(old.ends(), (0, 398));
        whole(&old, 0, 4);
        assert_same(&extended(root.path(), GROWING).unwrap(), &expected);
    }
    assert!(!path.with_file_name("survey.pyramid.tmp").exists());
}

#[test]
fn a_pyramid_with_damage_or_of_other_statistics_is_written_again() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = root.path().join(key(WORKER));
    grown(root.path(), 0..400);
    grown(other.path(), 0..400);
    grown(other.path(), 400..500);
    let expected = extended(other.path(), GROWING).unwrap();
    extended(root.path(), GROWING).unwrap();
    let bytes = fs::read(&path).unwrap();
    grown(root.path(), 400..500);
    for at in [1, 9, 40, bytes.len() / 3, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[at] ^= 0x20;
        fs::write(&path, &changed).unwrap();
        // Tiles that are complete are not read again.
        assert_eq!(extended(root.path(), GROWING).unwrap().ends(), expected.ends());
        fs::write(&path, &bytes[..at]).unwrap();
        assert_eq!(extended(root.path(), GROWING).unwrap().ends(), expected.ends());
    }
    assert_same(&Pyramid::open(Arc::new(Local::new(root.path())), WORKER).unwrap(), &expected);
    // Steps that are written again.
    written(root.path(), 300..700, 270, |row| row);
    let again = extended(root.path(), GROWING).unwrap();
    assert!(again.belongs_to(&reader(root.path()), WORKER));
    fs::remove_file(&path).unwrap();
    assert_same(&again, &extended(root.path(), GROWING).unwrap());
}

#[test]
fn one_process_at_a_time_writes_a_pyramid() {
    let root = tempfile::tempdir().unwrap();
    grown(root.path(), 0..400);
    let (source, path) = (Local::new(root.path()), root.path().join(key(WORKER)));
    let mut refused = 0;
    let mut inside = |_: u64, _: u64| {
        refused += usize::from(matches!(extended(root.path(), GROWING), Err(Error::Invalid(_))));
        Ok(())
    };
    build(&reader(root.path()), &source, WORKER, &path, &HashSet::new(), GROWING, &mut inside).unwrap();
    assert!(refused > 0);
    grown(root.path(), 400..500);
    extended(root.path(), GROWING).unwrap();
}

/// A store that counts its requests.
struct Store {
    files: Local,
    reads: Arc<AtomicUsize>,
    reach: Reach,
}

struct Object(Box<dyn Blob>, Arc<AtomicUsize>);

impl Source for Store {
    fn root(&self) -> String {
        self.files.root()
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        Ok(Box::new(Object(self.files.open(key)?, self.reads.clone())))
    }

    fn reach(&self) -> Reach {
        self.reach
    }

    fn reads_at_once(&self) -> Option<usize> {
        Some(8)
    }
}

impl Blob for Object {
    fn read_at(&self, offset: u64, length: u64, buffer: &mut Vec<u8>) -> Result<usize> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(offset, length, buffer)
    }
}

/// A pyramid in a store, and the count of its requests.
fn stored(root: &Path, reach: Reach) -> (Pyramid, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let store = Store { files: Local::new(root), reads: reads.clone(), reach };
    (Pyramid::open(Arc::new(store), WORKER).unwrap(), reads)
}

#[test]
fn one_request_of_a_store_reads_a_view() {
    let root = tempfile::tempdir().unwrap();
    written(root.path(), 0..900, 300, |row| row);
    let local = built(root.path()).unwrap();
    let reach = Reach::REMOTE;
    let first = Wanted { series: &[(7, 0)], measure: 1, level: 0, first: 0, shape: (1, 200) };
    for level in [0, 2, 5, 7] {
        let (remote, reads) = stored(root.path(), reach);
        // Header, directory, and all else.
        assert_eq!(reads.swap(0, Ordering::Relaxed), 3);
        let (_, bins) = whole(&remote, 0, level);
        assert_eq!(reads.swap(0, Ordering::Relaxed), 1, "level {level}");
        assert_eq!(format!("{bins:?}"), format!("{:?}", whole(&local, 0, level).1));
        whole(&remote, 0, level);
        assert_eq!(reads.swap(0, Ordering::Relaxed), 0, "what was read is known");
        remote.bins(&first).unwrap();
        assert_eq!(reads.swap(0, Ordering::Relaxed), 1);
    }
}

#[test]
fn what_a_view_reads_is_in_one_place() {
    let root = tempfile::tempdir().unwrap();
    written(root.path(), 0..2000, 300, |row| row);
    let local = built(root.path()).unwrap();
    let (_, top) = local.levels();
    // Only what has nothing between is read at once.
    let reach = Reach { gap: 0, ..Reach::REMOTE };
    let requests = |measure: usize, level: u8, series: &[(u32, u32)], (first, count): (u64, usize)| {
        let (remote, reads) = stored(root.path(), reach);
        reads.store(0, Ordering::Relaxed);
        let wanted = Wanted { series, measure, level, first, shape: (300, count) };
        let found = remote.bins(&wanted).unwrap();
        assert_eq!(format!("{found:?}"), format!("{:?}", local.bins(&wanted).unwrap()));
        reads.load(Ordering::Relaxed)
    };
    let all: Vec<(u32, u32)> = (0u32..).zip(&local.series).map(|(at, one)| (at, one.tensor)).collect();
    assert!(all.len() > 2 * 256);
    // All steps of all tensors: sizes are beside the counts, other measures are not.
    assert_eq!(requests(0, top, &all, (0, 32)), 1);
    assert_eq!(requests(3, top, &all, (0, 32)), 2);
    // A few tensors, and all, in a range of steps.
    assert_eq!(requests(3, 0, &all[..100], (160, 640)), 2);
    assert_eq!(requests(3, 0, &all, (0, 1024)), 2);
}

#[test]
fn names_of_segments_that_a_pyramid_has_are_not_read() {
    let root = tempfile::tempdir().unwrap();
    written(root.path(), 0..50, 3, |row| row);
    written(root.path(), 50..90, 3, |row| row);
    let pyramid = built(root.path()).unwrap();
    written(root.path(), 90..100, 5, |row| row);
    let reads = Arc::new(AtomicUsize::new(0));
    let store = Store { files: Local::new(root.path()), reads: reads.clone(), reach: Reach::REMOTE };
    let reader = reader(root.path());
    let covered = HashMap::from([(WORKER, (pyramid.covered(), pyramid.ends().1))]);
    let names: Vec<String> = reader.names(&store, &covered).unwrap().into_iter().map(|name| name.name).collect();
    assert_eq!((names, reads.swap(0, Ordering::Relaxed)), (pyramid_and(&["w3", "w4"], &pyramid), 1));
    // What was read once is known, and of segments with other steps the names are those of the files.
    let none = HashMap::from([(WORKER, (pyramid.covered(), 80))]);
    assert_eq!(reader.names(&store, &none).unwrap().len(), 5);
    assert_eq!(reads.swap(0, Ordering::Relaxed), 1);
    let selection = Selection { steps: Some((0..3).collect()), ..Selection::default() };
    assert_eq!(reader.read(&Local::new(root.path()), &selection).unwrap().rows.len(), 9);
}

/// The names of a pyramid and others.
fn pyramid_and(others: &[&str], pyramid: &Pyramid) -> Vec<String> {
    pyramid.names.iter().map(String::as_str).chain(others.iter().copied()).map(String::from).collect()
}

#[test]
fn gaps_are_read_along_up_to_a_limit() {
    let root = tempfile::tempdir().unwrap();
    written(root.path(), 0..50, 1, |row| row);
    built(root.path()).unwrap();
    let (remote, _) = stored(root.path(), Reach::REMOTE);
    let gap_of = |gaps: &[u64]| {
        let mut offset = 0;
        let mut items = vec![Item { file: 0, offset, length: 10 }];
        for gap in gaps {
            offset += 10 + gap;
            items.push(Item { file: 0, offset, length: 10 });
        }
        remote.file.reading(&Plan { files: Vec::new(), items }).reach().gap
    };
    assert_eq!(gap_of(&[]), 1 << 20);
    assert_eq!(gap_of(&[1 << 20, 5 << 20, 1 << 10]), 1 << 20);
    assert_eq!(gap_of(&[1 << 20; 8]), 1 << 20);
    assert_eq!(gap_of(&[1 << 20; 9]), (1 << 20) - 1);
    assert_eq!(gap_of(&[&[1 << 19; 8][..], &[1 << 20; 9]].concat()), (1 << 20) - 1);
    assert_eq!(gap_of(&[u64::MAX / 4; 3]), 1 << 20);
}
